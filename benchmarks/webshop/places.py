"""Which goal stands where, for all goals of a catalogue: a file that processes map, so that none holds it for itself.

For each kind of goal int64 `ends` [S], the number of goals of the first 1, 2, ... sources; then for each kind int32
`order` [G], the goals in the published order (a shuffle with seed 233).
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.webshop import mapped

SHUFFLE_SEED = 233
KINDS = ("human", "synthetic")
_MAGIC = "goals 1"


def shuffled(count: int, seed: int) -> np.ndarray:
    """0 to count - 1 in the order that a shuffle of a list with this seed gives."""
    indices = array("i", range(count))
    random.Random(seed).shuffle(indices)
    return np.frombuffer(indices, dtype=np.intc)


def write(path: Path, stamp: str, variants: Mapping[str, Iterable[int]]) -> None:
    """The file of a catalogue; `variants` holds, by kind, how many goals each source gives."""
    ends = {kind: np.cumsum(np.fromiter(variants[kind], dtype=np.int64)) for kind in KINDS}
    totals = {kind: int(ends[kind][-1]) if len(ends[kind]) else 0 for kind in KINDS}
    sizes = [size for kind in KINDS for size in (len(ends[kind]), totals[kind])]
    with path.open("wb") as file:
        file.write(mapped.header(_MAGIC, stamp, *sizes))
        for kind in KINDS:
            file.write(ends[kind].tobytes())
        for kind in KINDS:
            file.write(shuffled(totals[kind], SHUFFLE_SEED).astype(np.int32).tobytes())


class Places:
    """The file, mapped: `ends` and `order` by kind. ForeignFile where it is another catalogue's, or cut off."""

    def __init__(self, path: Path, stamp: str) -> None:
        humans, human, synthetics, synthetic = mapped.counts(path, _MAGIC, stamp)  # sources, goals
        orders = 8 * (humans + synthetics)
        mapped.check_size(path, orders + 4 * (human + synthetic))
        self.ends = {
            "human": mapped.array(path, np.int64, 0, humans),
            "synthetic": mapped.array(path, np.int64, 8 * humans, synthetics),
        }
        self.order = {
            "human": mapped.array(path, np.int32, orders, human),
            "synthetic": mapped.array(path, np.int32, orders + 4 * human, synthetic),
        }
