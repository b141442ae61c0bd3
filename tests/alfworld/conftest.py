"""What the ALFWorld tests share: benchmarks over generated games, and walks that reach every kind of action."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from benchmarks.alfworld import AlfWorld, make

pytest.importorskip("textworld", reason="needs the extra [alfworld]")


@pytest.fixture(scope="session")
def small() -> AlfWorld:
    """Small rooms."""
    return make(data="synth-small")


@pytest.fixture(scope="session")
def stock_size() -> AlfWorld:
    """Rooms of stock size."""
    return make(data="synth")


def walk(admissible: tuple[str, ...], rng: random.Random) -> str:
    """A next command: each admissible verb equally often, sometimes one that is not admissible."""
    if rng.random() < 0.15:
        return rng.choice(("open fridge 99", "take nothing", "", "LOOK", "go to", admissible[0] + " now"))
    verbs = sorted({command.split()[0] for command in admissible})
    verb = rng.choice(verbs)
    return rng.choice([command for command in admissible if command.split()[0] == verb])


@pytest.fixture(scope="session")
def walker() -> Callable[[tuple[str, ...], random.Random], str]:
    """The function `walk`."""
    return walk
