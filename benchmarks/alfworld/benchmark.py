"""How fast the engine runs here: `python -m benchmarks.alfworld.benchmark`.

Prints CPU seconds and steps per CPU second of random play in generated games: textworld's engine as it comes, with
the caches, and with the transition memo; in rooms of stock size and small ones. Takes about a minute.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from benchmarks.alfworld import AlfWorld, make
from benchmarks.alfworld.source import Player
from benchmarks.base import Task

HORIZON = 50


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--games", type=int, default=6, help="games of each size (default 6: one of each task type)")
    parser.add_argument("--episodes", type=int, default=8, help="episodes of each game (stock engine: 1)")
    chosen = parser.parse_args(arguments)
    print(f"{'rooms':<12} {'engine':<18} {'start s':>8} {'reset ms':>9} {'steps/s':>9} {'x stock':>8}")
    for data in ("synth", "synth-small"):
        _compare(data, chosen.games, chosen.episodes)


def _compare(data: str, games: int, episodes: int) -> None:
    variants = {
        "stock": (make(data=data, caches=False), 1, 20),
        "caches": (make(data=data, memo=False), episodes, HORIZON),
        "memo, first visits": (make(data=data), 1, HORIZON),
        "memo, all": (make(data=data), episodes, HORIZON),
    }
    stock = 0.0
    for name, (benchmark, repeats, horizon) in variants.items():
        start, reset, rate = _measure(benchmark, games, repeats, horizon)
        stock = stock or rate
        print(f"{data:<12} {name:<18} {start:8.3f} {1000 * reset:9.2f} {rate:9.0f} {rate / stock:8.1f}", flush=True)


def _measure(benchmark: AlfWorld, games: int, repeats: int, horizon: int) -> tuple[float, float, float]:
    """(CPU seconds of a game's first start, of a later reset, steps per CPU second)."""
    tasks = benchmark.task_set("train", games).tasks
    player = Player(benchmark.options)
    _play(player, tasks[0], 0, 1)  # imports and parsed grammar
    start = _seconds_per_game(player, benchmark.task_set("train", games, offset=games).tasks)
    _seconds_per_game(player, tasks)
    reset = _seconds_per_game(player, tasks)
    steps, spent = 0, 0.0
    for seed in range(repeats):
        for task in tasks:
            count, seconds = _play(player, task, seed, horizon)
            steps, spent = steps + count, spent + seconds
    return start, reset, steps / spent


def _seconds_per_game(player: Player, tasks: Sequence[Task]) -> float:
    before = time.process_time()
    for task in tasks:
        player.episode(task)
    return (time.process_time() - before) / len(tasks)


def _play(player: Player, task: Task, seed: int, horizon: int) -> tuple[int, float]:
    """(steps, CPU seconds) of one random episode, observations included, its start left out."""
    episode = player.episode(task)
    rng = random.Random(seed)
    observation = episode.observation()
    before = time.process_time()
    steps, done = 0, False
    while not done and steps < horizon:
        result = episode.step(rng.choice(observation.admissible))
        observation, done, steps = result.observation, result.done, steps + 1
    return steps, time.process_time() - before


if __name__ == "__main__":
    main()
