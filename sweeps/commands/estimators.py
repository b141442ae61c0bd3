"""`creditbench estimators`."""

from __future__ import annotations

import argparse
from typing import Any

ORDER = 80


def add(commands: Any) -> None:
    """The command's arguments."""
    listing = commands.add_parser("estimators", help="list the advantage estimators and their options")
    listing.set_defaults(run=_run)


def _run(_: argparse.Namespace) -> int:
    from algorithms import COMMON_OPTIONS, estimators, options_type

    common = options_type(estimators()[0]).__dataclass_fields__
    for name in estimators():
        fields = options_type(name).__dataclass_fields__
        own = [f"{key}={field.default}" for key, field in fields.items() if key not in COMMON_OPTIONS]
        print(f"{name:<10} {', '.join(own) or '(no options of its own)'}")
    print("\nshared, set in the protocol: " + ", ".join(f"{key}={common[key].default}" for key in COMMON_OPTIONS))
    return 0
