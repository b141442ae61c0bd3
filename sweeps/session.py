"""What training and evaluation of one run share: its benchmark, its policy, the slots it plays in."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

import benchmarks
from algorithms import prompting
from algorithms.behavior_cloning import warm_start
from algorithms.collector import Collector
from algorithms.evaluation import sampler
from algorithms.generation import BatchEngine, Engine
from algorithms.policy import Policy, hub_folder, load_policy, smollm2_folder
from algorithms.trainer import AgentTrainer
from algorithms.vllm_engine import VllmHost, host
from benchmarks.base import Benchmark, EnvironmentPool
from sweeps import memory
from sweeps.processes import Processes
from sweeps.schema import ConfigError
from sweeps.store import RunFolder

transformers_logging.disable_progress_bar()
warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.")  # about its own internals


def prepare(config: Mapping[str, Any], out: Path) -> Path:
    """The folder (or hub name, as a path) of the run's initial weights; a warm start is made once and cached below
    `out`/cache. Safe to call again, and from several processes."""
    _check_device(config["resources"]["device"])
    model, cache = config["model"], Path(out) / "cache"
    if model["kind"] == "hub":
        return hub_folder(model["path"], model["revision"])
    if model["kind"] == "smollm2":
        return smollm2_folder(cache)
    _use_threads(config)
    options = config["benchmark"]["options"]
    return warm_start(model, _benchmark(config), options, cache, _print_progress, _plain_benchmark(config))


def _check_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("resources.device=cuda, but PyTorch sees no CUDA device here; use auto or cpu")


def check_memory(config: Mapping[str, Any], processes: Processes) -> None:
    """ConfigError for a model that the GPU of this process cannot hold, before it is loaded."""
    if config["resources"]["device"] == "cpu" or not torch.cuda.is_available():
        return
    size = torch.cuda.get_device_properties(processes.device).total_memory / memory.GIB
    memory.check(config, memory.Layout(processes.world, processes.launch), size)


def _print_progress(stage: str, done: int, of: int) -> None:
    if done == of or done % max(1, of // 10) == 0:
        print(f"{stage}: {done}/{of}", flush=True)


def _benchmark(config: Mapping[str, Any]) -> Benchmark:
    return prompting.dressed(_plain_benchmark(config)(), config)


def _plain_benchmark(config: Mapping[str, Any]) -> Callable[[], Benchmark]:
    """What loads a run's benchmark, here or in another process."""
    section, options = config["benchmark"], prompting.benchmark_options(config)
    return functools.partial(benchmarks.load, section["name"], success_reward=section["success_reward"], **options)


def _use_threads(config: Mapping[str, Any]) -> None:
    torch.set_num_threads(config["resources"]["threads"])


@dataclass
class Session:
    """What training and evaluation of one run share."""

    run: RunFolder
    config: Mapping[str, Any]
    benchmark: Benchmark
    policy: Policy
    collector: Collector
    processes: Processes
    trainer: AgentTrainer | None = None
    _host: VllmHost | None = None

    @property
    def slots(self) -> int:
        return _slots(self.config, self.processes)

    @contextmanager
    def engine(self, temperature: float) -> Iterator[Engine]:
        """What generates replies in an evaluation; vLLM is started once, by the trainer if there is one."""
        protocol, resources = self.config["protocol"], self.config["resources"]
        most = protocol["max_response_tokens"]
        if resources["generation"]["engine"] == "transformers":
            rows = resources["rows_per_microbatch"]
            yield BatchEngine(sampler(self.policy, temperature=temperature, max_new_tokens=most, rows_per_call=rows))
        elif self.trainer is not None:
            with self.trainer.generation(temperature) as engine:
                yield engine
        else:
            if self._host is None:
                length, ends = protocol["max_prompt_tokens"] + most, self.policy.ends
                self._host = host(self.policy, resources["generation"], length=length, slots=self.slots, ends=ends)
            with self._host.engine(version=0, temperature=temperature, max_tokens=most) as engine:
                yield engine


def _slots(config: Mapping[str, Any], processes: Processes) -> int:
    """Episodes that one process plays at a time."""
    protocol = config["protocol"]
    return -(-protocol["group_size"] * protocol["tasks_per_update"] // processes.world)


@contextmanager
def open_session(run: RunFolder, weights: Path, initial: Path, processes: Processes) -> Iterator[Session]:
    """The session of a run whose weights lie in `weights`; adapters alone go on top of those in `initial`."""
    config = run.config()
    _use_threads(config)
    benchmark, protocol = _benchmark(config), config["protocol"]
    most = protocol["max_prompt_tokens"]
    policy = load_policy(config["model"], benchmark, folder=weights, base=initial, max_prompt_tokens=most)
    if config["resources"]["device"] != "cpu" and torch.cuda.is_available():
        policy.model.to(processes.device)
    pool: EnvironmentPool = benchmark.pool(_slots(config, processes), config["resources"]["workers"])
    try:
        collector = Collector(
            benchmark,
            policy,
            pool,
            horizon=protocol["horizon"],
            state_key=protocol["state_key"],
            history=prompting.history_shown(config),
        )
        yield Session(run, config, benchmark, policy, collector, processes)
    finally:
        pool.close()
