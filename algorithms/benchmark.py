"""Speed of the estimators: `python -m algorithms.benchmark`.

Prints seconds per estimator for a paper-size batch (16 groups x 8 trajectories x up to 50 steps, states of about 500
characters), growth up to a million rows, and how much slower a plain Python loop is. Every measurement starts from
fresh strings, so state keys are hashed in it: Python keeps the hash of a string it has seen.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from typing import Any

import numpy as np

from algorithms.estimators import estimate, estimators
from algorithms.rollouts import RolloutBatch

GROUP_SIZE = 8
HORIZON = 50
STATE_LENGTH = 500
MEAN_STEPS = 39  # of a synthetic trajectory, rounded down
PLACES = 30
CONDITIONS = 6  # what is held, what is open: the same place looks different
STAY = 0.2  # chance that a step leaves the observation as it was
CHANGE = 0.1  # chance that a step changes the condition
PAPER_ROWS = 6400  # 16 groups x 8 trajectories x 50 steps
_TEXT = frozenset({"group", "trajectory", "state", "action", "next_state"})


def synthetic_columns(
    groups: int, seed: int = 0, state_length: int = STATE_LENGTH, places: int = PLACES
) -> dict[str, Any]:
    """Columns of a batch shaped like ALFWorld's: random walks with revisits and self-loops, half of them solved.

    A group is 8 trajectories of 10 to 50 steps, about 320 rows; every string is a fresh object. `places` sets how much
    trajectories overlap: with 30, nearly two rows of three act in a state seen before.
    """
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = defaultdict(list)
    for group in range(groups):
        _append_group(columns, rng, group, state_length, places)
    return dict(columns)


def _groups_for(rows: int, steps: int = HORIZON) -> int:
    """Groups that hold `rows` rows where a trajectory takes `steps` steps."""
    return -(-rows // (GROUP_SIZE * steps))


def _append_group(
    columns: dict[str, list[Any]], rng: np.random.Generator, group: int, state_length: int, places: int
) -> None:
    for trajectory in range(GROUP_SIZE):
        solved = bool(rng.random() < 0.5)
        steps = int(rng.integers(10, HORIZON)) if solved else HORIZON
        walk = _walk(rng, steps, places)
        columns["group"] += [f"task-{group}"] * steps
        columns["trajectory"] += [f"task-{group}/{trajectory}"] * steps
        columns["step"] += range(steps)
        columns["state"] += [_observation(group, node, state_length) for node in walk[:-1]]
        columns["next_state"] += [_observation(group, node, state_length) for node in walk[1:]]
        columns["action"] += [f"go to {node}" for node in walk[1:]]
        columns["valid"] += (rng.random(steps) < 0.95).tolist()
        columns["reward"] += [0.0] * (steps - 1) + [10.0 * solved]
        columns["success"] += [solved] * steps


def _walk(rng: np.random.Generator, steps: int, places: int) -> list[int]:
    """Nodes seen, start included: [steps + 1]."""
    chance = rng.random(steps)
    place, condition = rng.integers(places, size=steps), rng.integers(CONDITIONS, size=steps)
    walk = [0]
    for t in range(steps):
        held, here = divmod(walk[-1], places)
        if chance[t] > STAY + CHANGE:
            here = int(place[t])
        elif chance[t] > STAY:
            held = int(condition[t])
        walk.append(held * places + here)
    return walk


def _observation(group: int, node: int, length: int) -> str:
    """Text whose ends agree within a group and whose middle names the node."""
    head = f"You are in task {group}. On the shelf you see " + "a plate, " * (length // 18)
    tail = ", a mug" * (length // 14)
    return (head + f"node {node}" + tail)[:length]


def measure(name: str, columns: dict[str, Any]) -> float:
    """Seconds from columns to advantages, validation and key hashing included."""
    fresh = _fresh(columns)
    begin = time.perf_counter()
    estimate(name, RolloutBatch.from_columns(success_reward=10.0, **fresh))
    return time.perf_counter() - begin


def _fresh(columns: dict[str, Any]) -> dict[str, Any]:
    """The columns with every string copied, so that none has its hash stored."""
    return {key: list(map(_copy, values)) if key in _TEXT else values for key, values in columns.items()}


def _copy(text: str) -> str:
    return (text + " ")[:-1]  # a new object, not yet hashed


def best_of(repeats: int, name: str, columns: dict[str, Any]) -> float:
    """Least seconds of several measurements."""
    return min(measure(name, columns) for _ in range(repeats))


def plain_gigpo(columns: dict[str, Any], gamma: float = 0.95, penalty: float = 0.1) -> list[float]:
    """GiGPO's step term the plain way, dictionaries and loops; rows of a trajectory adjacent and in order."""
    rows = range(len(columns["step"]))
    returns = [0.0] * len(rows)
    for row in reversed(rows):
        returns[row] = columns["reward"][row] + (0.0 if _is_last(columns, row) else gamma * returns[row + 1])
    scores = [returns[row] - penalty * (not columns["valid"][row]) for row in rows]
    return _plain_normalize(scores, _plain_pools(columns), lone_sign=False)


def plain_graft(
    columns: dict[str, Any], gamma: float = 0.99, gae_lambda: float = 0.95, penalty: float = 0.1
) -> list[float]:
    """GRAFT with merged sinks the plain way: values by repeated sweeps, reached sets walked anew for every row."""
    rows = range(len(columns["step"]))
    source = [(columns["group"][row], columns["state"][row]) for row in rows]
    target = [(columns["group"][row], columns["next_state"][row]) for row in rows]
    leaving = _plain_pools(columns)
    value = _plain_values(columns, source, target, leaving, gamma)
    residual = [gamma * value[target[row]] - value[source[row]] for row in rows]
    scores = []
    for row in rows:
        score, reached, weight, ahead = residual[row], {target[row]}, 1.0, row
        while not _is_last(columns, ahead):
            ahead, weight = ahead + 1, weight * gamma * gae_lambda
            edges = [edge for node in reached for edge in leaving.get(node, ())]
            if not edges:
                break
            score += weight * sum(residual[edge] for edge in edges) / len(edges)
            reached = {target[edge] for edge in edges}
        scores.append(score - penalty / 10.0 * (not columns["valid"][row]))
    return _plain_normalize(scores, leaving, lone_sign=True)


def _is_last(columns: dict[str, Any], row: int) -> bool:
    return row + 1 == len(columns["step"]) or columns["step"][row + 1] == 0


def _plain_pools(columns: dict[str, Any]) -> dict[tuple[str, str], list[int]]:
    pools: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(columns["group"], columns["state"], strict=True)):
        pools[key].append(row)
    return pools


def _plain_values(
    columns: dict[str, Any], source: list[Any], target: list[Any], leaving: dict[Any, list[int]], gamma: float
) -> dict[Any, float]:
    ends: dict[Any, list[bool]] = defaultdict(list)
    for row in range(len(source)):
        if _is_last(columns, row):
            ends[target[row]].append(columns["success"][row])
    value: dict[Any, float] = defaultdict(float, {node: sum(solved) / len(solved) for node, solved in ends.items()})
    change = 1.0
    while change > 1e-10:
        change = 0.0
        for node in reversed(leaving):
            if node not in ends:
                new = gamma * sum(value[target[edge]] for edge in leaving[node]) / len(leaving[node])
                change = max(change, abs(new - value[node]))
                value[node] = new
    return value


def _plain_normalize(scores: list[float], pools: dict[Any, list[int]], lone_sign: bool) -> list[float]:
    result = [0.0] * len(scores)
    for members in pools.values():
        if len(members) > 1:
            mean = sum(scores[row] for row in members) / len(members)
            variance = sum((scores[row] - mean) ** 2 for row in members) / (len(members) - 1)
            for row in members:
                result[row] = (scores[row] - mean) / (variance**0.5 + 1e-6)
        elif lone_sign:
            result[members[0]] = scores[members[0]] / (abs(scores[members[0]]) + 1e-6)
    return result


def paper_size(rows: int, repeats: int = 7) -> list[dict[str, Any]]:
    """One record per estimator on a batch with room for `rows` rows: the least of several measurements."""
    columns = synthetic_columns(_groups_for(rows))
    return [_record(name, columns, repeats) for name in estimators()]


def growth(rows: int, max_rows: int) -> list[dict[str, Any]]:
    """One record per estimator and size, sizes a factor of 5 apart, up to `max_rows`."""
    sizes = [size for size in (rows * 5**power for power in range(1, 12)) if size < max_rows]
    records = []
    for size in [*sizes, max_rows] if max_rows > rows else []:
        columns = synthetic_columns(_groups_for(size, MEAN_STEPS))
        records += [_record(name, columns, 1) for name in estimators()]
    return records


def _record(name: str, columns: dict[str, Any], repeats: int) -> dict[str, Any]:
    rows, seconds = len(columns["step"]), best_of(repeats, name, columns)
    return {"estimator": name, "rows": rows, "seconds": seconds, "ns_per_row": 1e9 * seconds / rows}


def against_plain(rows: int) -> list[dict[str, Any]]:
    """How much slower plain loops are than the estimator, keys hashed in both."""
    columns = synthetic_columns(_groups_for(rows))
    records = []
    for name, plain in (("gigpo", plain_gigpo), ("graft", plain_graft)):
        fresh = _fresh(columns)
        begin = time.perf_counter()
        plain(fresh)
        slow, fast = time.perf_counter() - begin, best_of(5, name, columns)
        records.append({"estimator": name, "plain_seconds": slow, "seconds": fast, "ratio": slow / fast})
    return records


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m algorithms.benchmark", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=PAPER_ROWS, help="room of the paper-size batch: rows if all ran 50 steps"
    )
    parser.add_argument("--max-rows", type=int, default=0, help="measure growth up to this many rows, say 1000000")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args(arguments)
    report = {
        "paper_size": paper_size(options.rows),
        "plain": against_plain(options.rows),
        "growth": growth(options.rows, options.max_rows),
    }
    print(json.dumps(report, allow_nan=False) if options.json else _tables(report))
    return 0


def _tables(report: dict[str, list[dict[str, Any]]]) -> str:
    lines = [f"{'estimator':<10} {'rows':>9} {'seconds':>9} {'ns/row':>8}"]
    for record in report["paper_size"] + report["growth"]:
        lines.append(
            f"{record['estimator']:<10} {record['rows']:>9} {record['seconds']:>9.4f} {record['ns_per_row']:>8.0f}"
        )
    lines.append("")
    for record in report["plain"]:
        lines.append(f"plain loop of {record['estimator']}: {record['plain_seconds']:.3f} s, {record['ratio']:.0f} x")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
