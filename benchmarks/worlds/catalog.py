"""The worlds, by kind. Each isolates one thing that credit assignment can get wrong."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.worlds.sokoban import sokoban
from benchmarks.worlds.world import Outcomes, World

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PASSAGES = ("north", "east", "south", "west")


@dataclass(frozen=True)
class _Table:
    """Rules written as tables: state -> command -> outcomes."""

    task: str
    start: Hashable
    table: Mapping[Hashable, Mapping[str, Outcomes]]
    faces: Mapping[Hashable, str]
    goals: frozenset[Hashable] = frozenset(("goal",))

    def moves(self, state: Hashable) -> Mapping[str, Outcomes]:
        return self.table[state]

    def won(self, state: Hashable) -> bool:
        return state in self.goals

    def lost(self, state: Hashable) -> bool:
        return state not in self.goals and state not in self.table

    def face(self, state: Hashable) -> str:
        return self.faces.get(state, "it is over ." if state not in self.goals else "you made it .")


def _sure(state: Hashable) -> Outcomes:
    return ((1.0, state),)


def detour(length: int = 6, detour: int = 3, junction: int = 2, seed: int = 0) -> World:
    """A path to the goal with a side path that rejoins it: every way succeeds, some ways are longer.

    Tests credit for wasted steps inside successful trajectories. `seed` is not used: there is one such world.
    """
    if not 0 <= junction < length - 1 or detour < 1:
        raise ValueError(f"detour needs 0 <= junction < length - 1 and detour >= 1, got {junction}, {length}, {detour}")
    table: dict[Hashable, dict[str, Outcomes]] = {}
    faces: dict[Hashable, str] = {}
    for place in range(length):
        following: Hashable = place + 1 if place + 1 < length else "goal"
        table[place] = {"go on": _sure(following), "go back": _sure(max(place - 1, 0))}
        faces[place] = f"path mark {place} ."
    table[junction]["take side path"] = _sure(("side", 0))
    for place in range(detour):
        following = ("side", place + 1) if place + 1 < detour else junction + 1
        table["side", place] = {
            "go on": _sure(following),
            "go back": _sure(("side", place - 1) if place else junction),
        }
        faces["side", place] = f"side path mark {place} ."
    return World.build("detour", _Table("reach the end of the path", 0, table, faces))


def key_and_door(rooms: int = 5, seed: int = 0) -> World:
    """A corridor with the key at one end and the locked door at the other: the useful step comes long before the
    success. The start is a room drawn by `seed`."""
    if rooms < 3:
        raise ValueError(f"key_and_door needs 3 rooms or more, got {rooms}")
    table: dict[Hashable, dict[str, Outcomes]] = {}
    faces: dict[Hashable, str] = {}
    for place in range(rooms):
        for key in (False, True):
            here = table[place, key] = {}
            if place:
                here["go left"] = _sure((place - 1, key))
            if place < rooms - 1:
                here["go right"] = _sure((place + 1, key))
            if place == 0 and not key:
                here["take key"] = _sure((0, True))
            if place == rooms - 1 and key:
                here["open door"] = _sure("goal")
            faces[place, key] = f"room {place} . you hold {'key' if key else 'nothing'} ."
    start = 1 + int(np.random.default_rng(seed).integers(rooms - 2))
    return World.build("key_and_door", _Table("open the door", (start, False), table, faces))


def recovery(stages: int = 2, climb: int = 2, seed: int = 0) -> World:
    """At each fork the good way leads on; the bad way can be recovered from at the price of steps, or lost.

    Tests credit for good steps after a mistake and for mistakes that were repaired. `seed` says which way is good.
    """
    if stages < 1 or climb < 1:
        raise ValueError(f"recovery needs stages >= 1 and climb >= 1, got {stages}, {climb}")
    good = np.random.default_rng(seed).integers(2, size=stages)
    table: dict[Hashable, dict[str, Outcomes]] = {}
    faces: dict[Hashable, str] = {}
    for stage in range(stages):
        onward: Hashable = (stage + 1, "fork") if stage + 1 < stages else "goal"
        ways = ("take left way", "take right way")
        table[stage, "fork"] = {
            ways[good[stage]]: _sure((stage, "road")),
            ways[1 - good[stage]]: _sure((stage, "pit", 0)),
        }
        faces[stage, "fork"] = f"fork {stage} ."
        table[stage, "road"] = {"go on": _sure(onward), "go back": _sure((stage, "fork"))}
        faces[stage, "road"] = f"road after fork {stage} ."
        for depth in range(climb):
            out: Hashable = (stage, "pit", depth + 1) if depth + 1 < climb else (stage, "road")
            table[stage, "pit", depth] = {"climb up": _sure(out), "push on": _sure("lost")}
            faces[stage, "pit", depth] = f"pit mark {depth} near fork {stage} ."
    return World.build("recovery", _Table("pass the forks", (0, "fork"), table, faces))


def optional_stop(rounds: int = 5, chance: float = 0.7, seed: int = 0) -> World:
    """Hand in now or wait: handing in succeeds with the same chance in every round, so (undiscounted) no decision
    is better than another and every advantage is 0. Tests bias from when an episode ends. `seed` is not used."""
    if rounds < 2 or not 0.0 < chance < 1.0:
        raise ValueError(f"optional_stop needs rounds >= 2 and 0 < chance < 1, got {rounds}, {chance}")
    table: dict[Hashable, dict[str, Outcomes]] = {}
    for place in range(rounds):
        table[place] = {"hand in": ((chance, "goal"), (1.0 - chance, "lost"))}
        if place + 1 < rounds:
            table[place]["wait"] = _sure(place + 1)
    faces: dict[Hashable, str] = {place: f"round {place} ." for place in range(rounds)}
    return World.build("optional_stop", _Table("hand in good work", 0, table, faces))


def slip(bridge: int = 2, road: int = 5, slip: float = 0.25, seed: int = 0) -> World:
    """A short bridge from which one may fall, and a long safe road on which one may only lose time.

    The shortest way is not the best one: tests methods that go by distance, and all that assume sure outcomes.
    `seed` is not used.
    """
    if bridge < 1 or road < 1 or not 0.0 <= slip < 1.0:
        raise ValueError(f"slip needs bridge >= 1, road >= 1 and 0 <= slip < 1, got {bridge}, {road}, {slip}")
    table: dict[Hashable, dict[str, Outcomes]] = {
        "start": {"take bridge": _sure(("bridge", 0)), "take road": _sure(("road", 0))}
    }
    faces: dict[Hashable, str] = {"start": "river bank ."}
    for place in range(bridge):
        after: Hashable = ("bridge", place + 1) if place + 1 < bridge else "goal"
        table["bridge", place] = {"go on": ((1.0 - slip, after), (slip, "lost")), "go back": _sure("start")}
        faces["bridge", place] = f"bridge mark {place} ."
    for place in range(road):
        after = ("road", place + 1) if place + 1 < road else "goal"
        table["road", place] = {"go on": ((1.0 - slip, after), (slip, ("road", place))), "go back": _sure("start")}
        faces["road", place] = f"road mark {place} ."
    return World.build("slip", _Table("get to the other side", "start", table, faces))


def aliased_rooms(rooms: int = 6, faces: int = 3, seed: int = 0) -> World:
    """Rooms in a row, each with one right door; several rooms look the same though their right doors differ.

    A wrong door leads back to the first room. `faces` distinct looks (`faces=rooms`: nothing is aliased); the right
    doors are drawn by `seed`, in such a way that some look has both.
    """
    if not 1 <= faces <= rooms or rooms < 2:
        raise ValueError(f"aliased_rooms needs 1 <= faces <= rooms and 2 rooms or more, got {faces}, {rooms}")
    right = np.random.default_rng(seed).integers(2, size=rooms)
    if faces < rooms:
        right[faces] = 1 - right[0]  # rooms 0 and `faces` look the same
    doors = ("open red door", "open blue door")
    table: dict[Hashable, dict[str, Outcomes]] = {}
    for room in range(rooms):
        onward: Hashable = room + 1 if room + 1 < rooms else "goal"
        table[room] = {doors[right[room]]: _sure(onward), doors[1 - right[room]]: _sure(0)}
    looks: dict[Hashable, str] = {room: f"a room of kind {room % faces} ." for room in range(rooms)}
    return World.build("aliased_rooms", _Table("find the way out", 0, table, looks))


def random_graph(rooms: int = 16, passages: int = 3, traps: int = 2, seed: int = 0) -> World:
    """Rooms joined by one-way passages drawn at random, with a goal at least 3 passages from the start, and traps."""
    if rooms < 6 or rooms > len(LETTERS) or not 1 <= passages <= len(PASSAGES) or not 0 <= traps < rooms - 4:
        raise ValueError(
            f"random_graph needs 6 to {len(LETTERS)} rooms, 1 to {len(PASSAGES)} passages and traps < rooms - 4, "
            f"got {rooms}, {passages}, {traps}"
        )
    rng = np.random.default_rng(seed)
    while True:
        leads = rng.integers(rooms, size=(rooms, passages))
        distance = _distances(leads, goal=rooms - 1, closed=range(rooms - 1 - traps, rooms - 1))
        if 3 <= distance[0] < np.inf:
            break
    names: dict[int, Hashable] = {room: room for room in range(rooms)}
    names[rooms - 1] = "goal"
    names |= {room: ("trap", room) for room in range(rooms - 1 - traps, rooms - 1)}
    table: dict[Hashable, dict[str, Outcomes]] = {
        room: {f"go {PASSAGES[p]}": _sure(names[int(leads[room, p])]) for p in range(passages)}
        for room in range(rooms - 1 - traps)
    }
    faces: dict[Hashable, str] = {room: f"room {LETTERS[room]} ." for room in range(rooms)}
    return World.build("random_graph", _Table("find the treasure", 0, table, faces))


def _distances(leads: np.ndarray, goal: int, closed: range) -> np.ndarray:
    """[rooms] passages to the goal, inf where there is no way; nothing leads out of closed rooms."""
    distance = np.full(len(leads), np.inf)
    distance[goal] = 0.0
    for _ in range(len(leads)):
        distance = np.minimum(distance, 1.0 + distance[leads].min(axis=1))
        distance[list(closed)] = np.inf
        distance[goal] = 0.0
    return distance


def random_layers(layers: int = 6, width: int = 4, passages: int = 3, seed: int = 0) -> World:
    """A random graph in layers: every episode has exactly `layers` steps and no state is met at two times.

    It meets the assumptions of GRAFT's propositions (deterministic, length T, the state tells the time); half of the
    last layer wins.
    """
    if layers < 2 or width < 2 or not 1 <= passages <= len(PASSAGES):
        raise ValueError(
            f"random_layers needs layers >= 2, width >= 2 and 1 to {len(PASSAGES)} passages, "
            f"got {layers}, {width}, {passages}"
        )
    rng = np.random.default_rng(seed)
    table: dict[Hashable, dict[str, Outcomes]] = {}
    faces: dict[Hashable, str] = {}
    for layer in range(layers):
        for place in range(1 if layer == 0 else width):
            leads = rng.permutation(width)[np.arange(passages) % width]
            table[layer, place] = {f"go {PASSAGES[p]}": _sure((layer + 1, int(leads[p]))) for p in range(passages)}
            faces[layer, place] = f"floor {layer} room {place} ."
    faces |= {(layers, place): f"floor {layers} room {place} ." for place in range(width)}
    goals = frozenset((layers, place) for place in range(width // 2))
    return World.build("random_layers", _Table("find the way up", (0, 0), table, faces, goals))


KINDS: dict[str, Callable[..., World]] = {
    "detour": detour,
    "key_and_door": key_and_door,
    "recovery": recovery,
    "optional_stop": optional_stop,
    "slip": slip,
    "aliased_rooms": aliased_rooms,
    "random_graph": random_graph,
    "random_layers": random_layers,
    "sokoban": sokoban,
}


def make_world(kind: str, **options: Any) -> World:
    """The world of a kind with its own options (`seed` among them). ValueError names an unknown kind or option."""
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown world {kind!r}{hint} (known: {', '.join(KINDS)})")
    known = inspect.signature(KINDS[kind]).parameters
    for option in options:
        if option not in known:
            raise ValueError(f"world {kind!r} has no option {option!r} (known: {', '.join(known)})")
    return KINDS[kind](**options)
