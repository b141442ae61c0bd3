"""What surrounds vLLM, without vLLM: when weights are pushed, when the engine sleeps, what a server is asked."""

from __future__ import annotations

import http.server
import json
import threading
from types import SimpleNamespace

import pytest

from algorithms.generation import BatchEngine
from algorithms.vllm_engine import ColocatedEngine, ServerEngine, VllmHost
from sweeps.config import ConfigError, compose


class Generation:
    """As much of TRL's VLLMGeneration as the host uses; it writes down what it is asked to do."""

    def __init__(self, mode="colocate", sleep=False, tensor_parallel=1):
        self.mode, self.enable_sleep_mode, self.tensor_parallel_size = mode, sleep, tensor_parallel
        self.generation_kwargs, self._llm_weights_sleeping = {}, sleep
        self.accelerator = SimpleNamespace(wait_for_everyone=lambda: None, num_processes=1)
        self.calls = []
        self.model = SimpleNamespace(named_parameters=list)
        self.llm = SimpleNamespace(
            llm_engine=object(),
            wake_up=lambda tags: self.calls.append(f"wake {tags[0]}"),
            sleep=lambda level: self.calls.append(f"sleep {level}"),
        )

    def sync_weights(self):
        self.calls.append("sync")

    def generate(self, prompts, images, num_generations):
        assert not self.enable_sleep_mode  # or TRL would sleep after this turn
        self.calls.append(f"generate {len(prompts)} at {self.temperature:g}")
        return None, [[7, 8]] * len(prompts), [[[-0.5], [-0.25]]] * len(prompts), None


def rollout(host, version, **settings):
    with host.engine(version=version, temperature=1.0, max_tokens=4) as engine:
        return engine


def test_weights_are_pushed_once_for_each_version():
    generation = Generation()
    host = VllmHost(generation, ends=[5], slots=2)
    for version in (0, 0, 1, 1, 2):
        assert isinstance(rollout(host, version), ColocatedEngine)
    assert generation.calls == ["sync"] * 3


def test_a_sleeping_engine_wakes_and_gets_its_weights_once_a_rollout():
    generation = Generation(sleep=True)
    host = VllmHost(generation, ends=[5], slots=2)
    rollout(host, 1)
    rollout(host, 1)  # its weights were dropped, so they are pushed again
    assert generation.calls == ["sync", "wake kv_cache", "sleep 2"] * 2
    assert generation.enable_sleep_mode
    assert generation._llm_weights_sleeping


def test_it_sleeps_after_a_failure_too():
    generation = Generation(sleep=True)
    with (
        pytest.raises(OSError, match="broken"),
        VllmHost(generation, [5], 2).engine(version=1, temperature=1.0, max_tokens=4),
    ):
        raise OSError("broken")
    assert generation.calls[-1] == "sleep 2"
    assert generation.enable_sleep_mode


def test_an_engine_that_processes_share_is_asked_in_lock_step():
    generation = Generation(sleep=True, tensor_parallel=2)
    host = VllmHost(generation, ends=[5], slots=2)
    with host.engine(version=1, temperature=0.4, max_tokens=4) as engine:
        assert isinstance(engine, BatchEngine)
        for key in (3, 1):
            engine.submit(key, [key], seed=0)
        replies = engine.advance()
    assert [(r.key, r.ids, r.logps) for r in replies] == [(3, [7, 8], [-0.5, -0.25]), (1, [7, 8], [-0.5, -0.25])]
    assert generation.calls == ["sync", "wake kv_cache", "generate 2 at 0.4", "sleep 2"]
    assert generation.generation_kwargs == {"stop_token_ids": [5]}


class Server(http.server.BaseHTTPRequestHandler):
    """A completion server that answers when all requests of the test are there; prompt [k, ...] gets reply [k, 99]."""

    def do_GET(self):
        self._send(200, {"data": [{"id": "model"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        if body["prompt"] == [13]:
            self._send(400, {"error": "no"})
            return
        self.server.together.wait(10)
        ids = [body["prompt"][0], 99]
        self._send(200, {"choices": [{"token_ids": ids, "logprobs": {"token_logprobs": [-0.1, None]}}]})

    def _send(self, code, value):
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        return None


@pytest.fixture
def server():
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    running.bodies, running.together = [], threading.Barrier(3)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


def drain(engine):
    replies = []
    while engine.waiting:
        replies += engine.advance()
    return replies


def test_a_server_is_asked_for_several_replies_at_a_time(server):
    engine = ServerEngine(f"http://127.0.0.1:{server.server_port}/", 3, temperature=0.7, max_tokens=9)
    for key in (4, 2, 6):
        engine.submit(key, [key, 1], seed=100 + key)
    replies = drain(engine)
    engine.abort()
    assert {reply.key: reply.ids for reply in replies} == {key: [key, 99] for key in (4, 2, 6)}
    assert replies[0].logps[0] == -0.1
    assert replies[0].logps[1] != replies[0].logps[1]  # not a number: no correction of that token
    asked = {body["prompt"][0]: body for body in server.bodies}
    assert {key: body["seed"] for key, body in asked.items()} == {4: 104, 2: 102, 6: 106}
    assert asked[4]["temperature"] == 0.7
    assert asked[4]["max_tokens"] == 9
    assert asked[4]["return_token_ids"] is True
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}  # or the server asks the model
    assert neutral.items() <= asked[4].items()


def test_a_server_s_slow_reply_holds_up_nobody(server):
    """Environments that answer while it is made get their turn: `advance` comes back without it."""
    engine = ServerEngine(f"http://127.0.0.1:{server.server_port}", 3, temperature=1.0)
    engine.submit(4, [4], seed=1)  # the server answers when three are there
    assert engine.advance() == []
    assert engine.waiting == 1
    for key in (2, 6):
        engine.submit(key, [key], seed=1)
    assert sorted(reply.key for reply in drain(engine)) == [2, 4, 6]
    engine.abort()


def test_a_server_that_refuses_or_is_not_there_is_named(server):
    url = f"http://127.0.0.1:{server.server_port}"
    engine = ServerEngine(url, 2, temperature=1.0)
    engine.submit(0, [13], seed=1)
    with pytest.raises(RuntimeError, match=f"vLLM server {url}: /v1/completions answered 400"):
        drain(engine)
    engine.abort()
    with pytest.raises(RuntimeError, match="start it with `vllm serve`"):
        ServerEngine("http://127.0.0.1:9", 2)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model=tiny"], "cannot run the tiny policy"),
        (["model=smollm2", "resources.generation.mode=server"], "the url of a vLLM server"),
        (["model=smollm2", "resources.generation.server=http://x"], "with resources.generation.mode=server only"),
        (
            ["model=smollm2", "resources.generation.mode=server", "resources.generation.server=http://x",
             "resources.generation.sleep=true"],
            "belong to mode=colocate",
        ),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(overrides, said):
    with pytest.raises(ConfigError, match=said):
        compose(["resources.generation.engine=vllm", *overrides])
