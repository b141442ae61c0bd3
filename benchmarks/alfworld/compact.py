"""The prompt of one step in few words of a closed vocabulary, for the built-in tiny policy.

    [task] heat cup countertop 1 [hold] cup 1 hot [at] microwave 1 [obs] closed [seen] cup 1 in microwave 1
    [room] drawer 1 shelf 2 [prev] open microwave 1 ; heat cup 1 with microwave 1 [act]

`[task]` names the first receptacle of the goal's class; `[room]` lists the receptacles not looked into yet;
`[obs]` is what stands or lies here. Names are two words, a class and a number.
"""

from __future__ import annotations

import functools

from benchmarks.alfworld import upstream
from benchmarks.alfworld.reading import kind_of, read_goal
from benchmarks.base import Observation, StepView

NUMBERS = 40
_FIELDS = ("[task]", "[hold]", "[at]", "[obs]", "[seen]", "[room]", "[prev]", "[act]")
_TASKS = ("pick", "look", "clean", "heat", "cool", "pick2")
_COMMANDS = (
    "go", "to", "open", "close", "take", "from", "move", "put", "in", "on", "in/on", "into", "examine", "use", "heat",
    "clean", "cool", "with", "slice", "look", "inventory",
)  # fmt: skip
_STATES = ("none", "nothing", "closed", "surface", "hot", "lit", ";")
_PAST = 2  # actions shown in [prev]


def words(text: str) -> list[str]:
    """Words of a compact prompt or a command; `" ".join` puts them back together."""
    return text.split()


@functools.cache
def lexicon() -> tuple[str, ...]:
    """Every word of compact prompts and commands, from ALFWorld's tables: never from demonstrations."""
    tables = upstream.affordances()
    kinds = {kind.lower() for kind in (*tables.OBJECTS_WSLICED, *tables.VAL_RECEPTACLE_OBJECTS)}
    numbers = [str(number) for number in range(1, NUMBERS + 1)]
    return tuple(dict.fromkeys((*_FIELDS, *_TASKS, *_COMMANDS, *_STATES, *sorted(kinds), *numbers)))


def compact(view: StepView) -> str:
    """The prompt of one step, words separated by single spaces."""
    observation = view.observation
    facts = observation.facts
    parts = [
        "[task]",
        *_task(observation),
        "[hold]",
        f"{facts['holding']} {facts['condition']}" if facts["holding"] else "none",
        "[at]",
        facts["location"] or "none",
        "[obs]",
        *_here(observation),
        "[seen]",
        *(place.replace("@", " in ") for place in _names(facts["seen"])),
        "[room]",
        *_unvisited(observation),
        "[prev]",
        " ; ".join(action for _, action in view.history[-_PAST:]),
        "[act]",
    ]
    return " ".join(" ".join(parts).split())


def _names(joined: str) -> list[str]:
    return [name for name in joined.split(",") if name]


def _task(observation: Observation) -> list[str]:
    goal = read_goal(observation.goal)
    if not goal.kind:
        return ["none"]
    places = [name for name in _names(observation.facts["room"]) if kind_of(name) == goal.place]
    return [goal.kind, goal.target, places[0] if places else goal.place]


def _here(observation: Observation) -> list[str]:
    """What is visible where the agent stands."""
    facts = observation.facts
    here = ["nothing"] if facts["failed"] else []  # the last action changed nothing
    if facts["door"] in ("open", "closed"):
        here.append(facts["door"])
    if facts["door"] != "closed":
        lit = _names(facts["lit"])
        here += [f"{name} lit" if name in lit else name for name in _names(facts["contents"])]
    return here


def _unvisited(observation: Observation) -> list[str]:
    visited = set(_names(observation.facts["visited"]))
    return [name for name in _names(observation.facts["room"]) if name not in visited]
