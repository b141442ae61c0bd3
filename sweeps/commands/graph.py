"""`creditbench graph`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError
from sweeps.commands.compare import add_rollouts, read

ORDER = 52


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "graph", help="draw the trajectory graph of one task group: states by value, actions by an estimator's credit"
    )
    add_rollouts(command)
    command.add_argument("--task", metavar="GROUP", help="the task group (default: a telling one)")
    command.add_argument(
        "--estimator",
        default="graft",
        metavar="NAME",
        help="with options as in graft:gae_lambda=0 (default: %(default)s)",
    )
    command.add_argument("--highlight", metavar="TRAJECTORY", help="name of a trajectory to highlight")
    command.add_argument(
        "--layout", default="auto", help="dot (graphviz), layered (our own) or auto: dot where it is installed"
    )
    command.add_argument(
        "--out",
        type=Path,
        action="append",
        metavar="FILE",
        help=".pdf, .svg, .png, .html (interactive) or .json; may be repeated (default: trajectory_graph.pdf)",
    )
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from algorithms import OptionError
    from analysis.faithfulness import Variant
    from analysis.graphs import FORMATS, graph_view

    files = arguments.out or [Path("trajectory_graph.pdf")]
    for file in files:
        if file.suffix[1:].lower() not in (*FORMATS, "html", "json"):
            raise UsageError(f"--out {file}: the suffix must be one of .{', .'.join((*FORMATS, 'html', 'json'))}")
    batch = read(arguments)
    try:
        variant = Variant.parse(arguments.estimator)
        view = graph_view(batch, arguments.task, variant.name, layout=arguments.layout, **variant.options)
        if arguments.highlight is not None:
            view.trajectory(arguments.highlight)
    except OptionError as error:
        raise UsageError(str(error)) from None
    except KeyError as error:
        raise UsageError(f"--highlight: {error.args[0]}") from None
    except ValueError as error:
        if type(error) is ValueError:  # the layout's
            raise UsageError(str(error)) from None
        raise
    for file in files:
        _write(view, file, arguments.highlight)
    print(f"group {view.group}: {len(view.nodes)} states, {len(view.edges)} actions: {', '.join(map(str, files))}")
    return 0


def _write(view: Any, file: Path, highlight: str | None) -> None:
    from analysis.graphs import draw
    from sweeps.files import atomic_write_json, atomic_write_text

    file.parent.mkdir(parents=True, exist_ok=True)
    kind = file.suffix[1:].lower()
    if kind == "json":
        atomic_write_json(file, view.to_json())
    elif kind == "html":
        from analysis.report import explorer_html

        atomic_write_text(file, explorer_html(view))
    else:
        draw(view, file, highlight)
