"""The command line, `creditbench`. Only what a command needs is imported, when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from sweeps import commands as commands_package
from sweeps.arguments import UsageError

USAGE = 2
FAILED = 1
INTERRUPTED = 130


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

    if isinstance(error, ConfigError | UsageError):
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
    commands_package.add_all(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
