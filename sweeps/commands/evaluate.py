"""`creditbench evaluate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError, add_common, use_threads

ORDER = 30


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "evaluate", help="evaluate a run's checkpoint, or (with overrides only) the policy as it is or prompted"
    )
    command.add_argument("--list", action="append", metavar="NAME", dest="lists", help="only this evaluation list")
    command.add_argument("--checkpoint", default="last", metavar="N", help="`last` or the number of an update")
    command.add_argument("--out", type=Path, default=Path("results"), help="runs go to OUT/runs (default: %(default)s)")
    add_common(command, "RUN, a run's folder; or Hydra overrides, e.g. model=smollm2")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    given = arguments.overrides
    if given and "=" not in given[0] and not given[0].startswith("~"):
        if len(given) > 1:
            raise UsageError(f"a run's configuration is fixed; {given[1]!r} cannot be changed in an evaluation")
        return _evaluate_run(Path(given[0]), arguments.lists, arguments.checkpoint)
    if not given:
        raise UsageError("evaluate needs a run's folder, or overrides such as model=smollm2")
    if arguments.lists or arguments.checkpoint != "last":
        raise UsageError("--list and --checkpoint go with a run's folder")
    return _evaluate_policy(given, arguments)


def _evaluate_run(folder: Path, lists: list[str] | None, checkpoint: str) -> int:
    from sweeps import extras
    from sweeps.files import StoreError
    from sweeps.schema import nearest
    from sweeps.store import RunFolder

    try:
        run = RunFolder.open(folder)
    except StoreError as error:
        raise UsageError(str(error)) from None
    config = run.config()
    known = list(config["protocol"]["evaluation"]["lists"])
    for name in lists or ():
        if name not in known:
            raise UsageError(f"--list {name!r} does not exist{nearest(name, known)} (known: {', '.join(known)})")
    if checkpoint != "last" and not checkpoint.isdecimal():
        raise UsageError(f"--checkpoint must be `last` or the number of an update, got {checkpoint!r}")
    extras.require(config)
    use_threads(config["resources"]["threads"])
    from sweeps.evaluations import evaluate_run
    from sweeps.single import print_evaluations

    evaluate_run(run.path, lists=lists, checkpoint=checkpoint)
    print_evaluations(run)
    return 0


def _evaluate_policy(overrides: list[str], arguments: argparse.Namespace) -> int:
    from algorithms.baselines import METHODS
    from sweeps.config import compose
    from sweeps.single import run_here

    chosen = any(text.startswith("algorithm=") for text in overrides)
    config = compose(overrides if chosen else ["algorithm=initial", *overrides], arguments.config_dir)
    if config["algorithm"]["objective"] is not None:
        raise UsageError(
            f"algorithm={config['algorithm']['name']} trains; give a run's folder to evaluate what it trained (methods "
            f"without training: initial, {', '.join(METHODS)})"
        )
    return run_here(config, arguments.out)
