"""What can be chosen about the ALFWorld benchmark."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import Any

SPLITS = ("train", "valid_seen", "valid_unseen")
LABELS = {
    "synth": "alfworld-synth-v1",
    "synth-small": "alfworld-synth-small-v1",
    "official": "alfworld-2.1.1",
}


@dataclass(frozen=True)
class Options:
    """Options of the benchmark; `make(**options)` takes them by name.

    data            "synth" (generated games, rooms of stock size), "synth-small" (generated games, 4-10
                    receptacles) or "official" (the `json_2.1.1` folder inside $ALFWORLD_DATA)
    history         how many past (observation, action) pairs `messages` shows; 2 in the published protocol
    success_reward  reward of the step that solves the task; every other step has 0
    caches          False runs textworld's engine as it comes: no cache, no transition memo (12 steps/s)
    memo            remember (state, command) -> (state, text); exact, since the games are deterministic
    memo_games      games kept per process (0.5-1.5 MB each) before the least recently played one is dropped
    memo_states     states kept per process (2.5 KB each) before games are dropped
    wasted          share of demonstrated steps that only look around (`look`, `inventory`, `examine ...`)
    engines         planner libraries per process (1.1 MB of temporary disk and about 5 MB of memory each)

    Raises ValueError for a value out of range.
    """

    data: str = "synth"
    history: int = 2
    success_reward: float = 10.0
    caches: bool = True
    memo: bool = True
    memo_games: int = 64
    memo_states: int = 50_000
    engines: int = 8
    wasted: float = 0.0

    def __post_init__(self) -> None:
        if self.data not in LABELS:
            raise ValueError(f"alfworld option data={self.data!r}{_hint(self.data, LABELS)}")
        for name, least in (("history", 0), ("memo_games", 1), ("memo_states", 1), ("engines", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"alfworld option {name}={getattr(self, name)!r}: needs {least} or more")
        if not 0 <= self.wasted < 1:
            raise ValueError(f"alfworld option wasted={self.wasted!r}: needs a share from 0 to below 1")
        if not self.success_reward > 0:
            raise ValueError(f"alfworld option success_reward={self.success_reward!r}: needs a number above 0")

    @property
    def label(self) -> str:
        """Name of the data; results of different labels are never comparable."""
        return LABELS[self.data]


def parse_options(**given: Any) -> Options:
    """Options by name. ValueError names an unknown option and the nearest known one."""
    known = [field.name for field in dataclasses.fields(Options)]
    for name in given:
        if name not in known:
            raise ValueError(f"unknown alfworld option {name!r}{_hint(name, known)}")
    return Options(**given)


def _hint(word: str, known: Any) -> str:
    near = difflib.get_close_matches(str(word), list(known), n=1)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    return f"{guess} (known: {', '.join(known)})"
