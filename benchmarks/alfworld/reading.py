"""Reading ALFWorld's texts: what an agent that reads every line knows. Nothing here asks the engine."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

BANNER = "-= Welcome to TextWorld, ALFRED! =-"
NOTHING = "Nothing happens."
_NAME = r"[a-z]+ \d+"
_NAMES = re.compile(_NAME)
_ARRIVE = re.compile(rf"You arrive at ({_NAME})\.")
_FACING = re.compile(rf"You are facing the ({_NAME})")
_OPEN = re.compile(rf"The ({_NAME}) is open\. In it, you see (.*)\.")
_CLOSED = re.compile(rf"The ({_NAME}) is closed\.")
_ON = re.compile(rf"On the ({_NAME}), you see (.*)\.")
_CLOSE = re.compile(rf"You close the ({_NAME})\.")
_TAKE = re.compile(rf"You pick up the ({_NAME}) from the ({_NAME})\.")
_PUT = re.compile(rf"You (?:move|put) the ({_NAME}) (?:to|in|on|in/on) the ({_NAME})\.")
_TREAT = re.compile(rf"You (heat|clean|cool) the ({_NAME}) using the ({_NAME})\.")
_LAMP = re.compile(rf"You turn on the ({_NAME})\.")
_TREATED = {"heat": "hot", "clean": "clean", "cool": "cool"}

_SENTENCES = (
    ("pick2", r"(?:put|find) two (?P<target>\w+) (?:in|and put them in) (?P<place>\w+)"),
    ("look", r"(?:look at|examine the) (?P<target>\w+) (?:under|with) the (?P<place>\w+)"),
    ("clean", r"(?:put a clean|clean some) (?P<target>\w+) (?:in|and put it in) (?P<place>\w+)"),
    ("heat", r"(?:put a hot|heat some) (?P<target>\w+) (?:in|and put it in) (?P<place>\w+)"),
    ("cool", r"(?:put a cool|cool some) (?P<target>\w+) (?:in|and put it in) (?P<place>\w+)"),
    ("pick", r"put (?:a|some) (?P<target>\w+) (?:in|on) (?P<place>\w+)"),
)
_GOALS = tuple((kind, re.compile(pattern + r"\.?")) for kind, pattern in _SENTENCES)


@dataclass(frozen=True)
class Goal:
    """What a task sentence asks: `target` is an object class, `place` a receptacle class (the lamp's for "look")."""

    kind: str = ""
    target: str = ""
    place: str = ""


def read_goal(sentence: str) -> Goal:
    """The goal of one of ALFWorld's sentence templates; an empty goal for any other sentence."""
    for kind, pattern in _GOALS:
        match = pattern.fullmatch(sentence.strip())
        if match:
            return Goal(kind, match["target"], match["place"])
    return Goal()


def kind_of(name: str) -> str:
    """Class of a name: "cabinet" of "cabinet 1"."""
    return name.partition(" ")[0]


def in_order(names: set[str] | list[str]) -> list[str]:
    """Names by class, then by number."""
    return sorted(names, key=lambda name: (kind_of(name), int(name.rpartition(" ")[2])))


@dataclass
class Knowledge:
    """What the texts of one episode have told so far.

    room      receptacles named at the start, in order
    location  receptacle the agent stands at, "" in the middle of the room
    holding   object in hand, "" for none; `treatments` maps objects to what was done to them: {"hot"}
    doors     receptacle -> "open", "closed" or "surface", as far as seen
    visited   receptacles whose contents were seen
    places    object -> receptacle, as far as known
    lit       lamps that were turned on
    """

    room: list[str]
    location: str = ""
    holding: str = ""
    treatments: dict[str, set[str]] = field(default_factory=dict)
    doors: dict[str, str] = field(default_factory=dict)
    visited: set[str] = field(default_factory=set)
    places: dict[str, str] = field(default_factory=dict)
    lit: set[str] = field(default_factory=set)
    failed: bool = False  # the last action changed nothing

    @classmethod
    def at_start(cls, intro: str) -> Knowledge:
        """From the first text of an episode."""
        scene = intro.partition("Your task is to:")[0]
        return cls(room=in_order(_NAMES.findall(scene)))

    def read(self, text: str) -> None:
        """Take in the reply to an action."""
        self.failed = text == NOTHING
        for pattern in (_ARRIVE, _FACING):
            if match := pattern.search(text):
                self.location = match[1]
        if match := _CLOSED.search(text) or _CLOSE.search(text):
            self.doors[match[1]] = "closed"
        for pattern, door in ((_OPEN, "open"), (_ON, "surface")):
            if match := pattern.search(text):
                self._see(match[1], door, _NAMES.findall(match[2]))
        self._handle(text)

    def _see(self, receptacle: str, door: str, objects: list[str]) -> None:
        self.doors[receptacle] = door
        self.visited.add(receptacle)
        self.places = {name: place for name, place in self.places.items() if place != receptacle}
        self.places.update(dict.fromkeys(objects, receptacle))

    def _handle(self, text: str) -> None:
        if match := _TAKE.search(text):
            self.holding = match[1]
            self.places.pop(match[1], None)
        elif match := _PUT.search(text):
            self.holding = ""
            self.places[match[1]] = match[2]
        elif match := _TREAT.search(text):
            self._treat(match[2], _TREATED[match[1]])
        elif match := _LAMP.search(text):
            self.lit.add(match[1])

    def _treat(self, name: str, result: str) -> None:
        done = self.treatments.setdefault(name, set())
        done -= {"hot": {"cool"}, "cool": {"hot"}}.get(result, set())
        done.add(result)

    def contents(self, receptacle: str) -> list[str]:
        """Objects known to be in or on a receptacle."""
        return in_order([name for name, place in self.places.items() if place == receptacle])


def facts_of(known: Knowledge, goal: Goal) -> dict[str, str]:
    """`Observation.facts`; names in lists are separated by commas.

    holding    object in hand ("" for none); condition: what was done to it ("hot", "clean cool")
    location   receptacle where the agent stands; door: "open", "closed" or "surface"; contents: objects there
    room       all receptacles; visited: those whose contents were seen
    seen       objects of the goal's class (and its lamps) with their places: "cup 1@fridge 1"
    lit        lamps turned on; failed: "yes" when the last action changed nothing
    """
    wanted = {goal.target, goal.place} if goal.kind == "look" else {goal.target}
    seen = in_order([name for name in known.places if kind_of(name) in wanted])
    return {
        "holding": known.holding,
        "condition": " ".join(sorted(known.treatments.get(known.holding, ()))),
        "location": known.location,
        "door": known.doors.get(known.location, ""),
        "contents": ",".join(known.contents(known.location)),
        "room": ",".join(known.room),
        "visited": ",".join(in_order(known.visited)),
        "seen": ",".join(f"{name}@{known.places[name]}" for name in seen),
        "lit": ",".join(in_order(known.lit)),
        "failed": "yes" if known.failed else "",
    }
