"""`creditbench plan`, `submit` and `retry`: a grid to what runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.arguments import add_common

if TYPE_CHECKING:
    from sweeps.plan import GridPlan
    from sweeps.submit import Options

ORDER = 40
QUEUE_UNKNOWN = 3
TRY_AGAIN = 75


def add(commands: Any) -> None:
    """The commands' arguments."""
    planning = commands.add_parser("plan", help="what a grid would submit: cells, resources, hours; writes nothing")
    _add_grid(planning)
    planning.add_argument("--cells", action="store_true", help="list every cell with its run and state")
    planning.add_argument("--script", action="store_true", help="print the first array's script as sbatch would get it")
    planning.add_argument("--json", action="store_true", help="print everything as JSON")
    planning.set_defaults(run=_plan)
    for name, text in (
        ("submit", "run a grid's missing, failed and lost cells, on Slurm or here; again to go on"),
        ("retry", "run a grid's failed, lost and cancelled cells again"),
    ):
        command = commands.add_parser(name, help=text)
        _add_grid(command)
        _add_submission(command, name)
        command.set_defaults(run=_submit, retry=name == "retry")


def _add_grid(command: argparse.ArgumentParser) -> None:
    command.add_argument("grid", metavar="GRID", help="name of a grid (sweeps/conf/grid) or a file")
    command.add_argument("--out", type=Path, default=Path("results"), help="runs go to OUT/runs (default: %(default)s)")
    command.add_argument("--filter", action="append", default=[], metavar="AXIS=VALUE,...", dest="filters",
                         help="only these cells, e.g. method=graft, seed=1,2, model='*7b', state=failed")  # fmt: skip
    command.add_argument("--cluster", metavar="NAME", help="profile of a site: in conf/cluster, or a file")
    command.add_argument("--job", action="append", default=[], metavar="KEY=VALUE", help="resources of every job")
    command.add_argument(
        "--only", default=None, metavar="STATES", help="states to submit (default: missing,failed,lost)"
    )
    command.add_argument("--max", type=int, dest="most", metavar="N", help="at most N cells")
    command.add_argument("--concurrent", type=int, metavar="N", help="at most N array elements at a time")
    add_common(command, "Hydra overrides of every cell, e.g. protocol.updates=20; cells get other ids")


def _add_submission(command: argparse.ArgumentParser, name: str) -> None:
    command.add_argument("--local", type=int, metavar="J", help="no Slurm: J cells at a time on this machine")
    command.add_argument("--gpus", metavar="0,1", help="with --local: hand out these GPUs (default: all visible)")
    command.add_argument("--dry-run", action="store_true", help=f"say what {name} would do; do nothing")
    command.add_argument("--json", action="store_true", help="print the outcome as JSON")
    command.add_argument("--allow-dirty", action="store_true", help="submit with uncommitted changes of the code")
    command.add_argument("--no-snapshot", action="store_false", dest="snapshot", help="jobs run the live checkout")
    command.add_argument("--same-code", action="store_true", help="refuse if done cells were run by other code")


def _planned(arguments: argparse.Namespace) -> tuple[GridPlan, Options]:
    from sweeps import grid, plan, submit
    from sweeps.schema import ConfigError

    chosen = grid.read(arguments.grid, arguments.config_dir)
    planned = plan.make(chosen, arguments.overrides, arguments.config_dir, arguments.cluster, arguments.job)
    by_default = (
        "failed,lost,cancelled" if getattr(arguments, "retry", False) else ",".join(submit.SUBMITTED_BY_DEFAULT)
    )
    only = tuple(state.strip() for state in (arguments.only or by_default).split(","))
    for state in only:
        if state not in submit.CHOICES:
            raise ConfigError(f"--only: {state!r} is not one of {', '.join(submit.CHOICES)}")
    for name, value in (("--max", arguments.most), ("--concurrent", arguments.concurrent)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be a whole number >= 1, got {value}")
    return planned, submit.Options(
        only=only, most=arguments.most, concurrent=arguments.concurrent,
        allow_dirty=getattr(arguments, "allow_dirty", False), snapshot=getattr(arguments, "snapshot", True),
        same_code=getattr(arguments, "same_code", False), filters=tuple(plan.parse_filters(arguments.filters)),
    )  # fmt: skip


def _plan(arguments: argparse.Namespace) -> int:
    from sweeps import plan, slurm, states, submit

    planned, options = _planned(arguments)
    known = states.read_states(arguments.out, planned.runs)
    todo = submit.choose(planned, known, options)
    size = slurm.array_limit() if slurm.available() and slurm.read_queue().problem is None else 1000
    chunks = submit.arrays(todo, size, options.concurrent)
    if arguments.json:
        print(json.dumps(_as_json(planned, known, todo, chunks), indent=1, allow_nan=False))
        return 0
    by_run = {run: state.state for run, state in known.items()}
    print(plan.describe(planned, by_run, [chunk.describe() for chunk in chunks], arguments.cells))
    if arguments.script and chunks:
        from sweeps import submission

        print("\n" + submission.preview(arguments.out, planned.name, chunks[0]))
    return 0


def _as_json(planned: GridPlan, known: Any, todo: Any, chunks: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "grid": planned.name,
        "table": planned.table,
        "gpu_hours": sum(p.job.gpu_hours / p.job.pack for p in planned.runs.values()),
        "cpu_hours": sum(p.job.cpu_hours / p.job.pack for p in planned.runs.values()),
        "memory": planned.memory(),
        "arrays": [{"elements": len(chunk.tasks), "cells": sum(map(len, chunk.tasks))} for chunk in chunks],
        "todo": [p.cell.id for p in todo],
        "cells": [{**p.cell.record(), "state": known[p.cell.id].state} for p in planned.cells],
    }


def _submit(arguments: argparse.Namespace) -> int:
    from sweeps.schema import ConfigError

    if arguments.local is not None and arguments.local < 1:
        raise ConfigError(f"--local must be a whole number >= 1, got {arguments.local}")
    if arguments.gpus is not None and arguments.local is None:
        raise ConfigError("--gpus goes with --local; on Slurm ask for GPUs with --job gpus=N")
    if arguments.dry_run:
        arguments.cells = arguments.script = False
        return _plan(arguments)
    planned, options = _planned(arguments)
    return _here(arguments, planned, options) if arguments.local else _on_slurm(arguments, planned, options)


def _here(arguments: argparse.Namespace, planned: GridPlan, options: Options) -> int:
    from sweeps import gridlocal

    gpus = gridlocal.visible_gpus(arguments.gpus)
    say = _quiet if arguments.json else print
    failed = gridlocal.run(arguments.out, planned, options, arguments.local, gpus, say)
    _print_summary(arguments, planned)
    return 1 if failed else 0


def _print_summary(arguments: argparse.Namespace, planned: GridPlan) -> None:
    from sweeps import states, status

    known = states.read_states(arguments.out, planned.runs)
    view = status.View(planned.name, planned.table, [p.cell for p in planned.cells], known)
    print(json.dumps(view.as_json(), indent=1, allow_nan=False) if arguments.json else status.render(view))


def _on_slurm(arguments: argparse.Namespace, planned: GridPlan, options: Options) -> int:
    import sys

    from sweeps import submission, submit

    say = _quiet if arguments.json else print
    try:
        report = submit.to_slurm(arguments.out, planned, options, say)
    except submit.QueueUnknown as error:
        print(f"creditbench: error: {error}", file=sys.stderr)
        return QUEUE_UNKNOWN
    except submission.Busy as error:
        print(f"creditbench: error: {error}", file=sys.stderr)
        return TRY_AGAIN
    if arguments.json:
        print(json.dumps({"schema": 1, **vars(report)}, indent=1, allow_nan=False))
    elif report.cells or report.stopped:
        print(f"{report.cells} cells submitted; see `creditbench status {arguments.grid} --out {arguments.out}`")
    else:
        print("nothing to submit")
    if report.stopped:
        print(f"creditbench: error: {report.stopped}; submit again later for the rest", file=sys.stderr)
        return TRY_AGAIN
    return 0


def _quiet(_: str) -> None:
    return None
