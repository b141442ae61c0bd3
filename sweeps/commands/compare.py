"""`creditbench compare`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError

ORDER = 50


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "compare", help="run estimators on stored rollouts and set them side by side; no GPU, no policy needed"
    )
    add_rollouts(command)
    command.add_argument(
        "--estimators",
        metavar="A,B",
        help="only these; options as in graft:sinks=dedicated:gae_lambda=0 (default: all registered)",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="common",
        help="a shared option of all, e.g. baseline_over=steps",
    )
    command.add_argument(
        "--task", metavar="GROUP", help="show every step of this task group; `auto` picks a telling one"
    )
    command.add_argument("--trajectory", metavar="NAME", help="with --task: only this trajectory")
    command.add_argument("--out", type=Path, metavar="DIR", help="also write tables there: Markdown, CSV, JSON")
    command.set_defaults(run=_run)


def add_rollouts(command: argparse.ArgumentParser) -> None:
    """The arguments that say which rollouts, and how to read those of another trainer."""
    command.add_argument(
        "rollouts",
        type=Path,
        metavar="ROLLOUTS",
        help="a rollouts/NNNNNN.parquet, a run's folder (its last update), or a .jsonl",
    )
    command.add_argument(
        "--format",
        metavar="NAME",
        help="of another trainer's records: verl-agent, trl, or a YAML file with a column map",
    )
    command.add_argument(
        "--columns", metavar="OURS=THEIRS,...", help="fields of those records, e.g. group=uid,state=anchor_obs"
    )


def read(arguments: argparse.Namespace) -> Any:
    """The batch that the arguments name; a run's folder gives way to the file that is read."""
    from analysis.foreign import read_rollouts

    if arguments.rollouts.is_dir():
        arguments.rollouts = _last_update(arguments.rollouts)
    columns = None if arguments.columns is None else _columns(arguments.columns)
    return read_rollouts(arguments.rollouts, arguments.format, columns)


def _last_update(run: Path) -> Path:
    from analysis.stored_rollouts import rollout_files

    files = rollout_files(run)
    if not files:
        raise UsageError(
            f"{run}: a folder without attempts/*/rollouts/*.parquet; give a run's folder or a file of rollouts"
        )
    return files[max(files)]


def _columns(text: str) -> dict[str, Any]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(ours and equals and theirs for ours, equals, theirs in pairs):
        raise UsageError(f"--columns: write OURS=THEIRS,... (an id of several fields as A+B), got {text!r}")
    return {ours.strip(): theirs.split("+") if "+" in theirs else theirs for ours, _, theirs in pairs}


def _run(arguments: argparse.Namespace) -> int:
    from analysis import compare_report
    from analysis.compare import compare

    if arguments.trajectory is not None and arguments.task is None:
        raise UsageError("--trajectory goes with --task")
    common = _common(arguments.common)
    batch = read(arguments)
    chosen = None if arguments.estimators is None else [name for name in arguments.estimators.split(",") if name]
    try:
        comparison = compare(batch, chosen, common)
    except ValueError as error:  # an option, or a state matching that needs more than rollouts
        raise UsageError(str(error)) from None
    steps = None if arguments.task is None else _steps(comparison, arguments)
    print(compare_report.terminal(comparison, arguments.rollouts.name))
    if steps is not None:
        print(compare_report.steps_terminal(steps, comparison.labels))
    if arguments.out is not None:
        _write(comparison, steps, arguments)
    return 0


def _common(settings: list[str]) -> dict[str, Any]:
    pairs = [text.partition("=") for text in settings]
    for text, (key, equals, value) in zip(settings, pairs, strict=True):
        if not (key and equals and value):
            raise UsageError(f"--set: write KEY=VALUE, got {text!r}")
    return {key: value for key, _, value in pairs}


def _steps(comparison: Any, arguments: argparse.Namespace) -> Any:
    from analysis.compare import step_view
    from analysis.graphs import telling_group

    group = telling_group(comparison.batch) if arguments.task == "auto" else arguments.task
    frame = step_view(comparison, group)
    if arguments.trajectory is None:
        return frame
    names = frame["trajectory"].astype(str)
    if arguments.trajectory not in set(names):
        raise UsageError(
            f"--trajectory {arguments.trajectory!r} is not in that group; it holds {', '.join(names.unique())}"
        )
    return frame[names == arguments.trajectory]


def _write(comparison: Any, steps: Any, arguments: argparse.Namespace) -> None:
    from analysis import compare_report as report
    from sweeps.files import atomic_write_json, atomic_write_text

    out, name = arguments.out, arguments.rollouts.name
    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "comparison.md": report.markdown(comparison, name),
        "estimators.csv": report.credits_csv(comparison),
        "pairs.csv": report.pairs_csv(comparison),
        "groups.csv": report.groups_csv(comparison),
    }
    if steps is not None:
        texts["steps.csv"] = report.steps_csv(steps)
    for file, text in texts.items():
        atomic_write_text(out / file, text)
    atomic_write_json(out / "comparison.json", report.record(comparison, name))
    print(f"written to {out}: {', '.join([*texts, 'comparison.json'])}")
