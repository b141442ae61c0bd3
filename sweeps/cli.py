"""The command line, `creditbench`. Only what a command needs is imported, when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.store import RunFolder

USAGE = 2
FAILED = 1
INTERRUPTED = 130

_OVERRIDES = "Hydra overrides, e.g. protocol.updates=20 model.layers=1 benchmark.options.data=synth"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 (something failed), 2 (usage or configuration) or 130 (interrupted)."""
    arguments = _arguments(list(sys.argv[1:] if argv is None else argv))
    try:
        return arguments.run(arguments)
    except KeyboardInterrupt:
        return _fail("interrupted; run the same command again to go on", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        return _report(error)


def _report(error: Exception) -> int:
    """One line on stderr for what a user can act on; anything else is a fault of ours and keeps its traceback."""
    from sweeps.files import StoreError
    from sweeps.schema import ConfigError

    if isinstance(error, ConfigError | _UsageError):
        return _fail(str(error), USAGE)
    if isinstance(error, StoreError):
        return _fail(str(error), FAILED)
    if isinstance(error, OSError) and error.filename:
        return _fail(f"{error.filename}: {error.strerror}", FAILED)
    if type(error).__module__.split(".")[0] in ("algorithms", "benchmarks", "analysis"):
        return _fail(" ".join(str(error).split()), FAILED)
    raise error


def _fail(message: str, code: int) -> int:
    print(f"creditbench: error: {message}", file=sys.stderr)
    return code


class _UsageError(ValueError):
    """Arguments that do not go together."""


# --- arguments --------------------------------------------------------------------------------------------------------


def _arguments(argv: list[str]) -> argparse.Namespace:
    """Options and overrides in any order; unknown options end the program with exit code 2."""
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    unknown = [text for text in rest if text.startswith("-")]
    if unknown or (rest and not hasattr(arguments, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(unknown or rest)}")
    if rest:
        arguments.overrides = [*arguments.overrides, *rest]
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="creditbench",
        description="Compare step-level credit assignment methods for LLM agents under one trainer.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_quickstart(commands)
    _add_train(commands)
    _add_evaluate(commands)
    listing = commands.add_parser("estimators", help="list the advantage estimators and their options")
    listing.set_defaults(run=_estimators)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    return parser


def _add_quickstart(commands: Any) -> None:
    command = commands.add_parser(
        "quickstart", help="train all methods side by side on this machine, then print a table and draw curves"
    )
    command.add_argument("--seeds", type=int, default=2, metavar="N", help="seeds 1 to N (default: 2)")
    command.add_argument("--methods", metavar="A,B", help="only these methods (default: all)")
    command.add_argument(
        "--jobs", type=int, default=_cores(), metavar="N", help="runs at a time (default: cores, max 4)"
    )
    command.add_argument("--out", type=Path, default=Path("results/quickstart"), help="folder (default: %(default)s)")
    command.add_argument("--dry-run", action="store_true", help="print the plan; run nothing, write nothing")
    _add_common(command)
    command.set_defaults(run=_quickstart)


def _add_train(commands: Any) -> None:
    command = commands.add_parser("train", help="run one cell in this process, or go on with it")
    command.add_argument("--out", type=Path, default=Path("results"), help="runs go to OUT/runs (default: %(default)s)")
    _add_common(command)
    command.set_defaults(run=_train)


def _add_evaluate(commands: Any) -> None:
    command = commands.add_parser(
        "evaluate", help="evaluate a run's checkpoint, or (with overrides only) the policy as it is"
    )
    command.add_argument("--list", action="append", metavar="NAME", dest="lists", help="only this evaluation list")
    command.add_argument("--checkpoint", default="last", metavar="N", help="`last` or the number of an update")
    command.add_argument("--out", type=Path, default=Path("results"), help="runs go to OUT/runs (default: %(default)s)")
    _add_common(command, "RUN, a run's folder; or Hydra overrides, e.g. model=smollm2")
    command.set_defaults(run=_evaluate)


def _add_common(command: argparse.ArgumentParser, overrides: str = _OVERRIDES) -> None:
    command.add_argument("overrides", nargs="*", default=[], metavar="KEY=VALUE", help=overrides)
    command.add_argument("--config-dir", type=Path, help="folder with further algorithm/, model/, ... YAML files")


def _cores() -> int:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, 4)


# --- commands ---------------------------------------------------------------------------------------------------------


def _quickstart(arguments: argparse.Namespace) -> int:
    from sweeps import quickstart

    if arguments.jobs < 1:
        raise _UsageError(f"--jobs must be a whole number >= 1, got {arguments.jobs}")
    methods = [name.strip() for name in arguments.methods.split(",")] if arguments.methods is not None else None
    plan = quickstart.make_plan(arguments.out, methods, arguments.seeds, arguments.overrides, arguments.config_dir)
    if arguments.dry_run:
        quickstart.check(plan)
        print(quickstart.describe(plan, arguments.jobs))
        return 0
    return quickstart.execute(plan, arguments.jobs)


def _train(arguments: argparse.Namespace) -> int:
    from sweeps.config import compose

    config = compose(arguments.overrides, arguments.config_dir)
    return _run_here(config, arguments.out)


def _run_here(config: dict[str, Any], out: Path) -> int:
    """One run in this process, unless it is done; then its evaluations."""
    from sweeps import preflight
    from sweeps.store import RunFolder

    preflight.check(config)
    run = RunFolder.create(out / "runs", config)
    if run.state() == "done":
        print(f"done already: {run.path}")
    else:
        _use_threads(config["resources"]["threads"])
        from sweeps.run import prepare, run_cell

        prepare(config, out)
        print(f"run {run.id} in {run.path}")
        _run_or_explain(run, run_cell)
    _print_evaluations(run)
    return 0


def _run_or_explain(run: RunFolder, run_cell: Callable[[Path], None]) -> None:
    """A failure in one line; its traceback is kept in the run's error.json."""
    from sweeps.files import StoreError
    from sweeps.schema import ConfigError

    try:
        run_cell(run.path)
    except (ConfigError, StoreError):
        raise
    except Exception as error:
        if run.error() is None:  # not recorded, so nothing would keep its traceback
            raise
        text = " ".join(str(error).split())
        raise StoreError(f"{type(error).__name__}: {text} (traceback in {run.path / 'error.json'})") from error


def _evaluate(arguments: argparse.Namespace) -> int:
    given = arguments.overrides
    if given and "=" not in given[0] and not given[0].startswith("~"):
        if len(given) > 1:
            raise _UsageError(f"a run's configuration is fixed; {given[1]!r} cannot be changed in an evaluation")
        return _evaluate_run(Path(given[0]), arguments.lists, arguments.checkpoint)
    if not given:
        raise _UsageError("evaluate needs a run's folder, or overrides such as model=smollm2")
    if arguments.lists or arguments.checkpoint != "last":
        raise _UsageError("--list and --checkpoint go with a run's folder")
    return _evaluate_policy(given, arguments)


def _evaluate_run(folder: Path, lists: list[str] | None, checkpoint: str) -> int:
    from sweeps import extras
    from sweeps.files import StoreError
    from sweeps.schema import nearest
    from sweeps.store import RunFolder

    try:
        run = RunFolder.open(folder)
    except StoreError as error:
        raise _UsageError(str(error)) from None
    config = run.config()
    known = list(config["protocol"]["evaluation"]["lists"])
    for name in lists or ():
        if name not in known:
            raise _UsageError(f"--list {name!r} does not exist{nearest(name, known)} (known: {', '.join(known)})")
    if checkpoint != "last" and not checkpoint.isdecimal():
        raise _UsageError(f"--checkpoint must be `last` or the number of an update, got {checkpoint!r}")
    extras.require(config)
    _use_threads(config["resources"]["threads"])
    from sweeps.run import evaluate_run

    evaluate_run(run.path, lists=lists, checkpoint=checkpoint)
    _print_evaluations(run)
    return 0


def _evaluate_policy(overrides: list[str], arguments: argparse.Namespace) -> int:
    from sweeps.config import compose

    if any(text.startswith("algorithm") for text in overrides):
        raise _UsageError("an evaluation of the initial policy has no algorithm; give a run's folder for a trained one")
    return _run_here(compose(["algorithm=initial", *overrides], arguments.config_dir), arguments.out)


def _use_threads(threads: int) -> None:
    """Before the numerical libraries start; a user's own setting stays."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))


def _print_evaluations(run: RunFolder) -> None:
    """A line an evaluation: success over all episodes and by kind of task."""
    for name, (_, rows) in run.evaluations().items():
        kinds = list(dict.fromkeys(row["kind"] for row in rows))
        parts = [_share([row for row in rows if row["kind"] == kind], kind) for kind in kinds if kind]
        print(f"{name}: {_share(rows, 'success')}" + (f" ({', '.join(parts)})" if len(parts) > 1 else ""))


def _share(rows: list[dict[str, Any]], word: str) -> str:
    won = sum(bool(row["success"]) for row in rows)
    return f"{word} {100 * won / len(rows):.1f}% = {won}/{len(rows)}" if rows else f"{word}: no episodes"


def _estimators(_: argparse.Namespace) -> int:
    from algorithms import COMMON_OPTIONS, estimators, options_type

    common = options_type(estimators()[0]).__dataclass_fields__
    for name in estimators():
        fields = options_type(name).__dataclass_fields__
        own = [f"{key}={field.default}" for key, field in fields.items() if key not in COMMON_OPTIONS]
        print(f"{name:<10} {', '.join(own) or '(no options of its own)'}")
    print("\nshared, set in the protocol: " + ", ".join(f"{key}={common[key].default}" for key in COMMON_OPTIONS))
    return 0


def _version(_: argparse.Namespace) -> int:
    from importlib import metadata

    try:
        print(metadata.version("creditbench"))
    except metadata.PackageNotFoundError:
        print("unknown: creditbench is not installed; use pip install -e .")
    return 0


if __name__ == "__main__":
    sys.exit(main())
