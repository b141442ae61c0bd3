"""`creditbench status`, `why` and `logs`: what became of a grid's cells."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.plan import Cell
    from sweeps.status import View

ORDER = 42


def add(commands: Any) -> None:
    """The commands' arguments."""
    status = commands.add_parser(
        "status",
        help="table of a grid's cells; exit code 0 all done, 1 some failed or lost, 2 incomplete, 3 queue unknown",
    )
    add_record(status)
    status.add_argument("--watch", type=float, metavar="SECONDS", help="show it again until nothing runs or waits")
    status.add_argument("--json", action="store_true", help="print everything as JSON")
    status.set_defaults(run=_status)
    why = commands.add_parser("why", help="why cells failed, are lost or wait: error, last lines, Slurm's reason")
    add_record(why)
    # named as the command line names what may also follow options
    why.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="CELL",
        help="runs' ids or their beginnings (default: all in trouble)",
    )
    why.add_argument("-n", type=int, default=10, metavar="LINES", help="lines of output (default: %(default)s)")
    why.add_argument("--json", action="store_true", help="print everything as JSON")
    why.set_defaults(run=_why)
    logs = commands.add_parser("logs", help="output of a cell's newest attempt")
    add_record(logs)
    logs.add_argument("cell", metavar="CELL", help="a run's id or its beginning")
    logs.add_argument("-f", "--follow", action="store_true", help="go on printing until the cell has ended")
    logs.add_argument(
        "-n", type=int, default=40, metavar="LINES", help="last lines to begin with (default: %(default)s)"
    )
    logs.set_defaults(run=_logs)


def add_record(command: argparse.ArgumentParser) -> None:
    """The grid, its store, and filters."""
    command.add_argument("grid", metavar="GRID", help="name of a grid (sweeps/conf/grid) or a file")
    command.add_argument(
        "--out", type=Path, default=Path("results"), help="runs lie in OUT/runs (default: %(default)s)"
    )
    command.add_argument("--filter", action="append", default=[], metavar="AXIS=VALUE,...", dest="filters",
                         help="only these cells, e.g. method=graft, seed=1,2, state=failed")  # fmt: skip
    command.add_argument("--config-dir", type=Path, help="folder with further grid/ YAML files")


def read_view(arguments: argparse.Namespace) -> View:
    """The grid as submitted (or as planned, when it was not) with the state of its cells."""
    from sweeps import plan, states, status, submission
    from sweeps.submit import commits

    name, table, cells = _cells(arguments)
    known = states.read_states(arguments.out, [cell.id for cell in cells])
    filters = plan.parse_filters(arguments.filters)
    chosen = [cell for cell in cells if plan.selected(cell, filters, known[cell.id].state)]
    view = status.View(name, table, chosen, known)
    done = [cell.id for cell in chosen if known[cell.id].state == "done"]
    versions = commits(arguments.out, done)
    if len(versions) > 1:
        view.notes.append("note: done cells were run by different code: "
                          + ", ".join(f"{len(runs)} by {version}" for version, runs in versions.items()))  # fmt: skip
    for one in submission.unsettled(arguments.out):
        view.notes.append(f"note: submission {one.id} was interrupted; the next submit finishes it")
    return view


def _cells(arguments: argparse.Namespace) -> tuple[str, str | None, list[Cell]]:
    from sweeps import grid, plan

    name = Path(arguments.grid).stem if arguments.grid.endswith((".yaml", ".yml")) else arguments.grid
    record = plan.read_record(arguments.out, name)
    if record is not None:
        return name, record.table, record.cells
    planned = plan.make(grid.read(arguments.grid, arguments.config_dir), (), arguments.config_dir)
    return name, planned.table, [one.cell for one in planned.cells]


def _status(arguments: argparse.Namespace) -> int:
    from sweeps import status
    from sweeps.schema import ConfigError

    if arguments.watch is not None and not 0 < arguments.watch < 86_400:
        raise ConfigError(f"--watch must be seconds above 0, at most a day, got {arguments.watch:g}")
    while True:
        view = read_view(arguments)
        if arguments.json:
            print(json.dumps(view.as_json(), indent=1, allow_nan=False), flush=True)
        else:
            clear = "\x1b[H\x1b[2J" if arguments.watch and sys.stdout.isatty() else ""
            print(clear + status.render(view), flush=True)
        if not arguments.watch or not {"queued", "running", "unknown"} & set(view.counts):
            return view.exit_code
        time.sleep(arguments.watch)


def find(view: View, prefix: str) -> Cell:
    """The cell whose run id begins with `prefix`; ConfigError when there is none, or several."""
    from sweeps.schema import ConfigError

    found = {cell.id: cell for cell in view.cells if cell.id.startswith(prefix)}
    if len(found) != 1:
        what = "several cells begin" if found else "no cell begins"
        raise ConfigError(f"{what} with {prefix!r}; `creditbench status {view.grid} --json` lists them")
    return next(iter(found.values()))


def _why(arguments: argparse.Namespace) -> int:
    from sweeps import explain

    view = read_view(arguments)
    if arguments.overrides:
        chosen = [find(view, prefix) for prefix in arguments.overrides]
    else:
        chosen = [cell for cell in view.cells if view.states[cell.id].state not in ("done", "missing", "running")]
    records = [explain.explain(arguments.out, cell, view.states[cell.id], arguments.n) for cell in chosen]
    if arguments.json:
        print(json.dumps(records, indent=1, allow_nan=False))
    else:
        print("\n\n".join(map(explain.render, records)) or "no cell is in trouble")
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    from sweeps import explain, states

    cell = find(read_view(arguments), arguments.cell)
    path = explain.log_path(arguments.out, cell.id)
    if path is None:
        print(f"{cell.label} has no output yet ({states.read_states(arguments.out, [cell.id])[cell.id].state})")
        return 1
    print(f"==> {path} <==")
    shown = explain.show(path, arguments.n)
    going = True
    while arguments.follow and going:
        going = states.read_states(arguments.out, [cell.id])[cell.id].state in ("running", "queued")
        shown = explain.show_more(explain.log_path(arguments.out, cell.id) or path, shown)
        time.sleep(1.0 if going else 0.0)
    return 0
