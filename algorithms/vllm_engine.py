"""Generation with vLLM: continuous batching in this process (colocate) or on a server, weights pushed by TRL.

TRL's `VLLMGeneration` starts the engine and synchronizes weights, on the trainer's behalf or on ours (`host`, for
evaluation without training); here is what it leaves out: requests that come at any time, each with a seed of its own,
and one wake-up, one synchronization and one sleep a rollout instead of one a turn.

vLLM is imported late: it changes its process (threads, environment variables).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import httpx
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from algorithms.adapters import frozen_kept
from algorithms.generation import BatchEngine, Engine, Reply
from algorithms.policy import Policy

_ON_CPU = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # cores are shared with the trainer
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
_CPU_CACHE = 1 << 30  # bytes of keys and values; vLLM would take a share of all memory
_SERVER_TIMEOUT = 600.0  # seconds for one reply
_SERVER_WAIT = 0.01  # seconds; then environments that have answered meanwhile get their turn
# said in every request: a server takes what is left out from the model's generation_config.json
_PLAIN = {
    "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}  # fmt: skip


class ColocatedEngine:
    """Continuous batching in vLLM's engine in this process, whose weights training updates.

    sampling    arguments of vLLM's SamplingParams, the same for every request
    steps, work engine steps so far, and the requests in them, for measurements
    """

    lockstep = False

    def __init__(self, engine: Any, **sampling: Any):
        self._engine, self._sampling = engine, sampling
        self._keys: dict[str, int] = {}
        self._count = 0
        self.steps = self.work = 0

    @property
    def waiting(self) -> int:
        """Requests without a reply."""
        return len(self._keys)

    def submit(self, key: int, prompt: list[int], seed: int) -> None:
        """Queue a request."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        name = str(self._count)
        self._count += 1
        own = {} if self._sampling["temperature"] == 0 else {"seed": seed}
        parameters = SamplingParams(n=1, logprobs=0, output_kind=RequestOutputKind.FINAL_ONLY, **self._sampling, **own)
        self._engine.add_request(name, {"prompt_token_ids": prompt}, parameters)
        self._keys[name] = key

    def advance(self) -> list[Reply]:
        """One step of the engine: a token of every running request."""
        self.steps += 1
        self.work += len(self._keys)
        done = [output for output in self._engine.step() if output.finished]
        return [_reply(self._keys.pop(output.request_id), output.outputs[0]) for output in done]

    def abort(self) -> None:
        """Drop what waits."""
        if self._keys:
            self._engine.abort_request(list(self._keys))
            self._keys.clear()


def _reply(key: int, output: Any) -> Reply:
    ids = list(output.token_ids)
    return Reply(key, ids, [at[token].logprob for token, at in zip(ids, output.logprobs, strict=True)])


class ServerEngine:
    """Continuous batching on a vLLM server: one HTTP request a reply, so that the server batches what is there.

    RuntimeError, in one line, when the server cannot be reached or refuses a request.
    """

    lockstep = False

    def __init__(self, url: str, slots: int, **sampling: Any):
        self._url = url.rstrip("/")
        self._sampling = sampling
        limits = httpx.Limits(max_connections=slots, max_keepalive_connections=slots)
        self._client = httpx.Client(limits=limits, timeout=_SERVER_TIMEOUT, trust_env=False)
        self._threads = ThreadPoolExecutor(max_workers=slots)
        self._running: dict[Future[Any], int] = {}
        self._model = self._ask("GET", "/v1/models")["data"][0]["id"]

    @property
    def waiting(self) -> int:
        """Requests without a reply."""
        return len(self._running)

    def submit(self, key: int, prompt: list[int], seed: int) -> None:
        """Send a request."""
        body = {
            "model": self._model, "prompt": prompt, "n": 1, "logprobs": 0, "return_token_ids": True,
            "seed": seed, **_PLAIN, **self._sampling,
        }  # fmt: skip
        self._running[self._threads.submit(self._ask, "POST", "/v1/completions", body)] = key

    def advance(self) -> list[Reply]:
        """The replies that are there; a short wait where there is none."""
        done, _ = wait(self._running, timeout=_SERVER_WAIT, return_when=FIRST_COMPLETED)
        finished = sorted(((self._running.pop(future), future) for future in done), key=lambda pair: pair[0])
        return [_reply_of(key, future.result()["choices"][0]) for key, future in finished]

    def abort(self) -> None:
        """Drop what waits, and the connections."""
        for future in self._running:
            future.cancel()
        self._running.clear()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def _ask(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            answer = self._client.request(verb, self._url + path, json=body)
        except httpx.HTTPError as error:
            raise RuntimeError(
                f"vLLM server {self._url}: {type(error).__name__}: {error} (start it with `vllm serve`, or set "
                "resources.generation.server)"
            ) from error
        if answer.status_code != 200:
            raise RuntimeError(f"vLLM server {self._url}: {path} answered {answer.status_code}: {answer.text[:300]}")
        return answer.json()


def _reply_of(key: int, choice: Mapping[str, Any]) -> Reply:
    logps = [math.nan if value is None else float(value) for value in choice["logprobs"]["token_logprobs"]]
    ids = list(choice["token_ids"])
    if len(ids) != len(logps):
        raise RuntimeError(f"the vLLM server gave {len(ids)} tokens with {len(logps)} log-probabilities")
    return Reply(key, ids, logps)


class VllmHost:
    """What keeps a vLLM engine in step with the trained weights: TRL's `VLLMGeneration`, used once a rollout.

    ends   ids of the tokens that end a reply
    slots  replies wanted at the same time
    """

    def __init__(self, generation: Any, ends: Sequence[int], slots: int):
        self.generation, self.ends, self.slots = generation, list(ends), slots
        generation.generation_kwargs = {**generation.generation_kwargs, "stop_token_ids": self.ends}
        self._held: int | None = None  # version of the weights that the engine holds

    @property
    def lockstep(self) -> bool:
        """Whether processes share one engine and have to call it together."""
        return self.generation.mode == "colocate" and self.generation.tensor_parallel_size > 1

    @contextmanager
    def engine(self, *, version: int, temperature: float, max_tokens: int) -> Iterator[Engine]:
        """An engine that holds the current weights; `version` says which these are (optimizer steps so far)."""
        with self._awake(version):
            if self.lockstep:
                self.generation.temperature, self.generation.max_completion_length = temperature, max_tokens
                yield BatchEngine(self._turn)
                return
            engine = self._streaming(temperature=temperature, max_tokens=max_tokens, stop_token_ids=self.ends)
            try:
                yield engine
            finally:
                engine.abort()

    def _turn(self, prompts: list[list[int]]) -> tuple[list[list[int]], list[list[float]]]:
        """One call of an engine that several processes share; each must bring equally many prompts, so those with
        fewer repeat their last one."""
        accelerator = self.generation.accelerator
        most = max(gather_object([len(prompts)])) if accelerator.num_processes > 1 else len(prompts)
        filled = prompts + prompts[-1:] * (most - len(prompts))
        _, ids, logps, _ = self.generation.generate(prompts=filled, images=None, num_generations=1)
        return ids[: len(prompts)], [[at[0] for at in reply] for reply in logps[: len(prompts)]]

    def _streaming(self, **sampling: Any) -> ColocatedEngine | ServerEngine:
        if self.generation.mode == "server":
            return ServerEngine(self.generation.server_base_url, self.slots, **sampling)
        return ColocatedEngine(self.generation.llm.llm_engine, **sampling)

    @contextmanager
    def _awake(self, version: int) -> Iterator[None]:
        """Sleeping engines drop their weights, so they are pushed again; others only when they changed."""
        generation = self.generation
        sleeps = generation.mode == "colocate" and generation.enable_sleep_mode
        if sleeps or self._held != version:
            with frozen_kept(generation.model):
                generation.sync_weights()
            generation.accelerator.wait_for_everyone()  # a server's weights are whole before anyone asks
            self._held = version
        if not sleeps:
            yield
            return
        generation.llm.wake_up(tags=["kv_cache"])
        generation.enable_sleep_mode = False  # or TRL sleeps after every turn
        try:
            yield
        finally:
            generation.enable_sleep_mode = True
            generation.llm.sleep(level=2)
            generation._llm_weights_sleeping = True


@contextmanager
def llm_arguments(options: Mapping[str, Any], dtype: torch.dtype, cpu: bool) -> Iterator[None]:
    """Within it, TRL starts vLLM with further arguments of `vllm.LLM`: `options`, the policy's own dtype (vLLM would
    take a float32 checkpoint for bfloat16) and, on a CPU, what lets weights be updated there."""
    from trl.generation import vllm_generation

    arguments = {"dtype": str(dtype).removeprefix("torch."), "disable_log_stats": True}
    if cpu:
        _prepare_cpu()
        arguments |= {"enforce_eager": True, "kv_cache_memory_bytes": _CPU_CACHE}
    original = vllm_generation.LLM
    vllm_generation.LLM = functools.partial(original, **{**arguments, **options})
    try:
        yield
    finally:
        vllm_generation.LLM = original


def _prepare_cpu() -> None:
    for name, value in _ON_CPU.items():
        os.environ.setdefault(name, value)
    import torch._dynamo
    from vllm import _custom_ops

    torch._dynamo.config.disable = True  # or the first reply waits for a compiler
    _custom_ops._supports_onednn = False  # or packed weights take the place of those that are updated


def host(policy: Policy, settings: Mapping[str, Any], *, length: int, slots: int, ends: Sequence[int]) -> VllmHost:
    """An engine for evaluation without a trainer; it gets the policy's weights when it is first used.

    settings  resources.generation;  length  tokens of a prompt and a reply together, at most
    """
    from trl.generation.vllm_generation import VLLMGeneration

    cpu = policy.model.device.type == "cpu"
    with llm_arguments(settings["options"], policy.model.dtype, cpu):
        generation = VLLMGeneration(
            model=policy.model,
            accelerator=Accelerator(cpu=cpu),
            processing_class=policy.tokenizer,
            mode=settings["mode"],
            server_base_url=settings["server"],
            tensor_parallel_size=settings["tensor_parallel"],
            gpu_memory_utilization=settings["gpu_share"],
            max_model_length=length,
            max_num_seqs=slots,
            enable_sleep_mode=False,
            temperature=1.0,
        )
    return VllmHost(generation, ends, slots)
