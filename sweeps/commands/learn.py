"""`creditbench learn`."""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError, cores, use_threads

ORDER = 65


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "learn", help="train tabular policies in known worlds with each estimator: curves and a significance table"
    )
    command.add_argument(
        "--estimators", metavar="A,B", help="only these; options as in graft:sinks=dedicated (default: all registered)"
    )
    command.add_argument("--worlds", metavar="A,B", help="only these kinds (default: all in which there is to learn)")
    command.add_argument("--seeds", type=int, default=100, metavar="N", help="seeds a method (default: %(default)s)")
    command.add_argument("--updates", type=int, default=80, metavar="N", help="updates (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="seed of worlds and rollouts (default: 0)")
    command.add_argument("--jobs", type=int, default=cores(), metavar="N", help="processes (default: cores, max 4)")
    command.add_argument("--out", type=Path, default=Path("results/learning"), help="folder (default: %(default)s)")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    use_threads(1)
    from analysis import learning_report
    from sweeps.files import atomic_write_json, atomic_write_text

    plan, out = _plan(arguments), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    results = _learn_all(plan, arguments.jobs)
    comparisons = learning_report.compare(results)
    atomic_write_json(out / "learning.json", learning_report.record(results, comparisons))
    atomic_write_text(out / "comparisons.csv", learning_report.comparisons_csv(comparisons))
    atomic_write_text(out / "learning.md", learning_report.markdown(results, comparisons))
    learning_report.draw(results, out / "learning")
    print(f"\n{learning_report.terminal(results, comparisons)}\ntables and curves: {out}")
    return 0


def _plan(arguments: argparse.Namespace) -> list[Any]:
    from algorithms import OptionError, estimators
    from analysis.faithfulness import Variant
    from analysis.worlds_learning import KINDS, plan
    from benchmarks.worlds.catalog import KINDS as KNOWN
    from sweeps.schema import nearest

    for name, least in (("jobs", 1), ("seed", 0), ("seeds", 2), ("updates", 1)):
        if getattr(arguments, name) < least:
            raise UsageError(f"--{name} must be a whole number >= {least}, got {getattr(arguments, name)}")
    kinds = KINDS if arguments.worlds is None else [name.strip() for name in arguments.worlds.split(",")]
    for kind in kinds:
        if kind not in KNOWN:
            raise UsageError(f"--worlds {kind!r} does not exist{nearest(kind, KNOWN)} (known: {', '.join(KNOWN)})")
    try:
        methods = [
            Variant.parse(text).label
            for text in (estimators() if arguments.estimators is None else arguments.estimators.split(","))
        ]
    except OptionError as error:
        raise UsageError(f"--estimators: {error}") from None
    return plan(
        list(dict.fromkeys(methods)), list(dict.fromkeys(kinds)), arguments.seeds, arguments.updates, arguments.seed
    )


def _learn_all(plan: list[Any], jobs: int) -> list[Any]:
    """Results in the order of the plan, from `jobs` processes (this one alone when there is one)."""
    from analysis.worlds_learning import learn

    if jobs == 1:
        return [_announced(done, len(plan), learn(*cell)) for done, cell in enumerate(plan, start=1)]
    with ProcessPoolExecutor(min(jobs, len(plan)), mp_context=get_context("spawn")) as pool:
        results = pool.map(learn, *zip(*plan, strict=True))
        return [_announced(done, len(plan), result) for done, result in enumerate(results, start=1)]


def _announced(done: int, of: int, result: Any) -> Any:
    if done == of or done % 10 == 0:
        print(f"learning: {done}/{of} (world, method) pairs", flush=True)
    return result
