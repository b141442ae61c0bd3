"""Genuine ALFWorld games from a seed, without any download.

Domain, grammar, goals, sentence templates and affordance tables are ALFWorld's own; only the initial state (which
receptacles, which objects, where) and the goal's parameters are drawn here. A game is a pure function of the
label, the split and the index; a scene has the same receptacles in every game.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import cached_property

from benchmarks.alfworld import rooms, upstream
from benchmarks.alfworld.game_data import GameData

SIZES = {"train": 3000, "valid_seen": 144, "valid_unseen": 144}
_START = "loc|-9|-9|0|30"
# the domain's actions name these types, so they exist in every problem
_ALWAYS_OBJECTS = ("Knife", "ButterKnife")
_ALWAYS_RECEPTACLES = ("SinkBasin", "Microwave", "Fridge")
_ABILITIES = {"Cleanable": "cleanable", "Heatable": "heatable", "Coolable": "coolable", "Sliceable": "sliceable"}
_MANGLE = (("|", "_bar_"), ("-", "_minus_"), ("+", "_plus_"), (".", "_dot_"))


@dataclass(frozen=True)
class Size:
    """How large the rooms of a label are: receptacles by room; distractors as (fewest, most classes, most of one)."""

    layouts: dict[str, dict[str, tuple[int, int]]]
    distractors: tuple[int, int, int]


STOCK = Size(rooms.STOCK_ROOMS, rooms.STOCK_DISTRACTORS)
SMALL = Size(rooms.SMALL_ROOMS, rooms.SMALL_DISTRACTORS)
LABELS = {"alfworld-synth-v1": STOCK, "alfworld-synth-small-v1": SMALL}


@dataclass(frozen=True)
class Goal:
    """Parameters of a game's goal, ALFRED class names; `receptacle` or `lamp` is "" where the task has none."""

    task: str
    target: str
    receptacle: str
    lamp: str
    count: int  # objects of the target class to put into the room


@dataclass(frozen=True)
class _Place:
    kind: str
    name: str
    location: str


@dataclass(frozen=True)
class _Thing:
    kind: str
    name: str
    place: _Place


class _Names:
    """Names like ALFRED's, `Class|x|y|z`; no coordinates twice."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def draw(self, kind: str, rng: random.Random) -> str:
        while True:
            spans = ((-3, 3), (0, 2), (-3, 3))
            where = "|".join(f"{rng.uniform(low, high):+06.2f}" for low, high in spans)
            if where not in self._used:
                break
        self._used.add(where)
        # the engine's readable names append "basin" to a name that holds it: sink|..|sinkbasin reads "sinkbasin 1"
        return _mangle(f"{kind[:-5]}|{where}|{kind}" if kind.endswith("Basin") else f"{kind}|{where}")


def _mangle(name: str) -> str:
    for mark, word in _MANGLE:
        name = name.replace(mark, word)
    return name


def _seeded(*parts: object) -> random.Random:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


class _Room:
    """The receptacles of one scene: the same in every game of a label."""

    def __init__(self, label: str, kind: str, scene: int) -> None:
        self.kind, self.scene, self.names = kind, scene, _Names()
        self.holds = upstream.affordances().VAL_RECEPTACLE_OBJECTS
        rng = _seeded(label, "layout", scene)
        layout = LABELS[label].layouts[kind]
        kinds = [name for name, (low, high) in layout.items() for _ in range(rng.randint(low, high))]
        self.places = [self._place(name, index, rng) for index, name in enumerate(kinds)]

    def _place(self, kind: str, index: int, rng: random.Random) -> _Place:
        # the index makes locations differ: two receptacles at one location cannot be told apart by the engine
        x, turn, tilt = rng.randint(-9, 9), rng.randint(0, 3), rng.choice((-30, 0, 30, 60))
        return _Place(kind, self.names.draw(kind, rng), _mangle(f"loc|{x}|{index}|{turn}|{tilt}"))

    def homes(self, thing: str) -> list[_Place]:
        """Receptacles that may hold an object of this class."""
        return [place for place in self.places if thing in self.holds.get(place.kind, ())]

    @cached_property
    def classes(self) -> list[str]:
        """Object classes that have a home in this room."""
        return [thing for thing in rooms.ROOM_OBJECTS[self.kind] if self.homes(thing)]


def _draw_goal(task: str, room: _Room, rng: random.Random) -> Goal | None:
    """A goal that this room can hold, or None."""
    if task == "look_at_obj_in_light":
        if not any(place.kind in rooms.LAMP_STANDS for place in room.places):
            return None
        return Goal(task, rng.choice(room.classes), "", rng.choice(rooms.LAMPS[room.kind]), rng.randint(1, 2))
    ability, tool = rooms.TREATMENTS.get(task, ("", ""))
    able = upstream.affordances().VAL_ACTION_OBJECTS[ability] if ability else room.classes
    kinds = sorted({place.kind for place in room.places} - {tool})
    pairs = [
        (thing, kind)
        for thing in room.classes
        for kind in kinds
        if thing in able
        and thing in room.holds.get(kind, ())
        and any(home.kind != kind for home in room.homes(thing))  # the goal must be false at the start
    ]
    if not pairs:
        return None
    target, receptacle = rng.choice(pairs)
    count = rng.randint(2, 3) if task == "pick_two_obj_and_place" else rng.randint(1, 2)
    return Goal(task, target, receptacle, "", count)


def _draw_things(goal: Goal, room: _Room, size: Size, rng: random.Random) -> list[_Thing]:
    """Targets, distractors and the lamp, each in a receptacle that may hold it; targets never where they must go."""
    fewest, most, copies = size.distractors
    others = [thing for thing in room.classes if thing != goal.target]
    chosen = rng.sample(others, min(len(others), rng.randint(fewest, most)))
    kinds = [goal.target] * goal.count + [thing for thing in chosen for _ in range(rng.randint(1, copies))]
    things = []
    for kind in kinds:
        homes = [home for home in room.homes(kind) if kind != goal.target or home.kind != goal.receptacle]
        things.append(_Thing(kind, room.names.draw(kind, rng), rng.choice(homes)))
    if goal.lamp:
        stands = [place for place in room.places if place.kind in rooms.LAMP_STANDS]
        things.append(_Thing(goal.lamp, room.names.draw(goal.lamp, rng), rng.choice(stands)))
    return things


def _thing_facts(thing: _Thing) -> list[str]:
    able = upstream.affordances().VAL_ACTION_OBJECTS
    name = thing.name
    facts = [
        f"(objectType {name} {thing.kind}Type)",
        f"(inReceptacle {name} {thing.place.name})",
        f"(objectAtLocation {name} {thing.place.location})",
        f"({'toggleable' if thing.kind in able['Toggleable'] else 'pickupable'} {name})",
    ]
    return facts + [f"({word} {name})" for ability, word in _ABILITIES.items() if thing.kind in able[ability]]


def _place_facts(place: _Place) -> list[str]:
    facts = [f"(receptacleType {place.name} {place.kind}Type)", f"(receptacleAtLocation {place.name} {place.location})"]
    openable = place.kind in upstream.affordances().OPENABLE_CLASS_LIST
    return facts + ([f"(openable {place.name})"] if openable else [])


def _problem(goal: Goal, room: _Room, things: list[_Thing]) -> str:
    """The PDDL problem. Without a metric (the translator refuses one before `:init`)."""
    thing_kinds = sorted({thing.kind for thing in things})
    place_kinds = sorted({place.kind for place in room.places})
    start = _mangle(_START)
    objects = ["agent1 - agent"]
    objects += [f"{kind}Type - otype" for kind in sorted({*thing_kinds, *_ALWAYS_OBJECTS})]
    objects += [f"{kind}Type - rtype" for kind in sorted({*place_kinds, *_ALWAYS_RECEPTACLES})]
    objects += [f"{thing.name} - object" for thing in things]
    objects += [f"{place.name} - receptacle" for place in room.places]
    objects += [f"{location} - location" for location in [*(place.location for place in room.places), start]]
    facts = ["(= (total-cost) 0)", f"(atLocation agent1 {start})"]
    facts += [fact for place in room.places for fact in _place_facts(place)]
    facts += [
        f"(canContain {place}Type {thing}Type)"
        for place in place_kinds
        for thing in thing_kinds
        if thing in room.holds.get(place, ())
    ]
    facts += [fact for thing in things for fact in _thing_facts(thing)]
    template = upstream.goal_library()[goal.task]["pddl"]
    wanted = template.format(obj=goal.target, recep=goal.receptacle, toggle=goal.lamp).replace("#", "-")
    head = "(define (problem plan)\n(:domain alfred)\n(:objects\n"
    return head + "\n".join(objects) + "\n)\n(:init\n" + "\n".join(facts) + "\n)\n" + wanted  # `wanted` closes define


def make_game(label: str, split: str, index: int) -> GameData:
    """The game number `index` of a split; task types take turns. ValueError for an unknown label or split."""
    if label not in LABELS or split not in SIZES:
        raise ValueError(f"no generated games {label!r}/{split!r} (known: {', '.join(LABELS)}; {', '.join(SIZES)})")
    task = rooms.TASK_TYPES[index % len(rooms.TASK_TYPES)]
    low, high = rooms.UNSEEN_SCENES if split == "valid_unseen" else rooms.TRAIN_SCENES
    rng = _seeded(label, split, index, task)
    while True:  # a few small rooms cannot hold a few tasks
        kind = rng.choice(rooms.TASK_ROOMS[task])
        room = _Room(label, kind, rooms.FIRST_SCENE[kind] + rng.randint(low, high))
        goal = _draw_goal(task, room, rng)
        if goal is not None:
            break
    things = _draw_things(goal, room, LABELS[label], rng)
    template = rng.choice(upstream.goal_library()[task]["templates"])
    words = {"obj": goal.target.lower(), "recep": goal.receptacle.lower(), "toggle": goal.lamp.lower()}
    domain, grammar = upstream.domain_and_grammar()
    return GameData(
        id=f"{split}/{index:06d}/{task}-{goal.target}-{goal.receptacle or goal.lamp}-{room.scene}",
        task_type=task,
        domain=domain,
        problem=_problem(goal, room, things),
        grammar=grammar,
        sentence=template.format(**words),
    )
