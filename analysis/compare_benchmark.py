"""How long a comparison of all estimators takes, against plain loops for the part that is no estimator's own.

python -m analysis.compare_benchmark [--rows N] [--plain-rows N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from algorithms import RolloutBatch, estimators
from algorithms.benchmark import synthetic_columns
from algorithms.states import encode
from analysis.compare import compare, decisive_rows
from analysis.group_statistics import group_statistics

_ROWS_A_GROUP = 322  # of `synthetic_columns`, on average


def plain_decisive(columns: dict[str, Any]) -> list[bool]:
    """Decisive steps by dictionaries and lists, rows as given."""
    outcomes: dict[Any, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    keys = list(zip(columns["group"], columns["state"], strict=True))
    for key, action, success in zip(keys, columns["action"], columns["success"], strict=True):
        outcomes[key][action].append(success)
    differs = {key: len({sum(o) / len(o) for o in tried.values()}) > 1 for key, tried in outcomes.items()}
    return [differs[key] for key in keys]


def plain_degree(columns: dict[str, Any]) -> float:
    """Mean information propagation degree by a walk from every state; final states are sinks."""
    following: dict[Any, set[Any]] = defaultdict(set)
    ends: dict[Any, set[Any]] = defaultdict(set)
    count = len(columns["step"])
    for row in range(count):
        group = columns["group"][row]
        following[group, columns["state"][row]].add((group, columns["next_state"][row]))
        if row + 1 == count or columns["step"][row + 1] == 0:
            ends[group, columns["next_state"][row]].add(columns["trajectory"][row])
    heard = {node: _heard(node, following, ends) for node in list(following)}
    return sum(heard[key] for key in zip(columns["group"], columns["state"], strict=True)) / count


def _heard(start: Any, following: dict[Any, set[Any]], ends: dict[Any, set[Any]]) -> int:
    reached, waiting, told = {start}, [start], set()
    while waiting:
        node = waiting.pop()
        if node in ends:
            told |= ends[node]
            continue
        fresh = following.get(node, set()) - reached
        reached |= fresh
        waiting += fresh
    return len(told)


def measure(rows: int, plain_rows: int) -> list[tuple[str, int, float]]:
    """(what, rows, seconds) of a whole comparison, of its graph statistics and of the plain loops."""
    large, small = _columns(rows), _columns(plain_rows)
    fresh = [_batch(large) for _ in range(3)]  # a batch keeps its states once they are numbered
    count = fresh[0].rows
    results = [
        ("build and check the batch", count, _seconds(lambda: _batch(large))),
        (f"compare, {len(estimators())} estimators", count, _seconds(lambda: compare(fresh[0]))),
        ("graph statistics alone", count, _seconds(lambda: group_statistics(fresh[1]))),
        ("decisive steps alone", count, _seconds(lambda: decisive_rows(encode(fresh[2])))),
    ]
    count = len(small["step"])
    results.append(("plain loops: one of 13 graph statistics", count, _seconds(lambda: plain_degree(small))))
    results.append(("plain loops: decisive steps", count, _seconds(lambda: plain_decisive(small))))
    return results


def _columns(rows: int) -> dict[str, Any]:
    return synthetic_columns(max(1, rows // _ROWS_A_GROUP))


def _batch(columns: dict[str, Any]) -> RolloutBatch:
    return RolloutBatch.from_columns(success_reward=10.0, **columns)


def _seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def report(results: list[tuple[str, int, float]]) -> str:
    """The measurements as a Markdown table, and how much the plain loops take a row in comparison."""
    lines = ["| what | rows | seconds | µs a row |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {what} | {rows} | {seconds:.2f} | {1e6 * seconds / rows:.1f} |" for what, rows, seconds in results]
    pace = {what: seconds / rows for what, rows, seconds in results}
    degree = pace["plain loops: one of 13 graph statistics"] / pace["graph statistics alone"]
    decisive = pace["plain loops: decisive steps"] / pace["decisive steps alone"]
    return "\n".join([*lines, "", f"Plain loops, a row: {degree:.0f} x (degree), {decisive:.0f} x (decisive steps)."])


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.compare_benchmark", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the comparison (default: %(default)s)")
    parser.add_argument("--plain-rows", type=int, default=10_000, help="rows of the plain loops (default: %(default)s)")
    options = parser.parse_args(arguments)
    sys.stdout.write(report(measure(options.rows, options.plain_rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
