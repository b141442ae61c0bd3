"""What several commands share: their common arguments, the error of wrong usage, threads."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

OVERRIDES = "Hydra overrides, e.g. protocol.updates=20 model.layers=1 benchmark.options.data=synth"


class UsageError(ValueError):
    """Arguments that do not go together; the command ends with exit code 2."""


def add_common(command: argparse.ArgumentParser, overrides: str = OVERRIDES) -> None:
    """Overrides and --config-dir."""
    command.add_argument("overrides", nargs="*", default=[], metavar="KEY=VALUE", help=overrides)
    command.add_argument("--config-dir", type=Path, help="folder with further algorithm/, model/, ... YAML files")


def cores() -> int:
    """Cores of this process, at most 4."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, 4)


def use_threads(threads: int) -> None:
    """Before the numerical libraries start; a user's own setting stays."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
