"""Scripted policies: a searcher that knows only what it has read, the planner, and one that does nothing.

The planner is given the whole state, so it walks straight to an object nobody has seen; imitating it teaches
memory of games. The searcher looks into receptacles until it finds its target, which carries over to new games.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks.alfworld import rooms, upstream
from benchmarks.alfworld.episode import Episode, GraphSession
from benchmarks.alfworld.reading import Goal, kind_of, read_goal
from benchmarks.alfworld.source import Player
from benchmarks.base import Observation, StepView, Task

Policy = Callable[[Observation], str]
HORIZON = 50
MOST_RANDOM_ACTIONS = 5
_TREATMENTS = {"heat": ("hot", "microwave"), "cool": ("cool", "fridge"), "clean": ("clean", "sinkbasin")}
_IDLE = "look"
_IDLERS = ("look", "inventory", "examine ")  # commands that change nothing


def noop_policy(observation: Observation) -> str:
    """Looks around for ever; wins nothing."""
    return _IDLE


def planner_policy(episode: Episode) -> Policy:
    """Fast Downward's plan from the episode's present state, replayed. ValueError with the stock engine."""
    if not isinstance(episode.session, GraphSession):
        raise ValueError("the planner policy needs the cached engine (caches=True)")
    plan = iter(episode.session.plan())
    return lambda observation: next(plan, _IDLE)


def search_policy(observation: Observation) -> str:
    """The searcher's next command, from the visible facts alone; it keeps no state of its own.

    It brings the target where the sentence asks, by way of the treatment, and looks for it first in receptacles
    that can hold its class, in the room's order. "look" when it knows nothing to do.
    """
    goal = read_goal(observation.goal)
    if not goal.kind:
        return _IDLE
    return _first(_wishes(goal, observation), observation)


def _first(wishes: Iterable[str], observation: Observation) -> str:
    """The first wish that is admissible now."""
    possible = set(observation.admissible)
    return next((command for command in wishes if command in possible), _IDLE)


def _wishes(goal: Goal, observation: Observation) -> Iterator[str]:
    """Commands that would help, best first; the caller takes the first one that is admissible."""
    held = observation.facts["holding"]
    if held and kind_of(held) != goal.target:
        yield from _put_away(held, observation)
    elif held and goal.kind == "look":
        yield from _use_lamp(goal, observation)
    elif held:
        yield from _deliver(held, goal, observation)
    else:
        yield from _fetch(goal, observation)


def _put_away(held: str, observation: Observation) -> Iterator[str]:
    yield from (command for command in observation.admissible if command.startswith(_puts(held)))
    homes = [name for name in _names(observation, "room") if _holds(kind_of(name), kind_of(held))]
    # a closed receptacle costs one action more
    for name in sorted(homes, key=lambda name: (_openable(kind_of(name)), homes.index(name))):
        yield from (f"open {name}", f"go to {name}")


def _puts(held: str) -> tuple[str, str]:
    """How a command to put this object down begins; the second is of games made before ALFWorld 0.4."""
    return f"move {held} to ", f"put {held} in/on "


def _use_lamp(goal: Goal, observation: Observation) -> Iterator[str]:
    for lamp, place in _seen(observation):
        if kind_of(lamp) == goal.place:
            yield from (f"use {lamp}", f"go to {place}")
    yield from _search(goal.place, observation)


def _deliver(held: str, goal: Goal, observation: Observation) -> Iterator[str]:
    result, tool = _TREATMENTS.get(goal.kind, ("", ""))
    if result and result not in observation.facts["condition"].split():
        for name in _of_kind(tool, observation):
            yield from (f"{goal.kind} {held} with {name}", f"go to {name}")
    for name in _of_kind(goal.place, observation)[:1]:
        yield from (*(put + name for put in _puts(held)), f"open {name}", f"go to {name}")


def _fetch(goal: Goal, observation: Observation) -> Iterator[str]:
    done = [] if goal.kind in ("look", *_TREATMENTS) else _of_kind(goal.place, observation)[:1]
    for name, place in _seen(observation):
        if kind_of(name) == goal.target and place not in done:
            yield from (f"take {name} from {place}", f"open {place}", f"go to {place}")
    yield from _search(goal.target, observation)


def _search(wanted: str, observation: Observation) -> Iterator[str]:
    """Look into the next receptacle: the one at hand, then likely ones, then the rest."""
    visited = _names(observation, "visited")
    here = observation.facts["location"]
    unknown = [name for name in _names(observation, "room") if name not in visited]
    for name in sorted(unknown, key=lambda name: (name != here, not _holds(kind_of(name), wanted))):
        yield from (f"open {name}", f"go to {name}", f"examine {name}")


def _names(observation: Observation, fact: str) -> list[str]:
    return [name for name in observation.facts[fact].split(",") if name]


def _of_kind(kind: str, observation: Observation) -> list[str]:
    return [name for name in _names(observation, "room") if kind_of(name) == kind]


def _seen(observation: Observation) -> list[tuple[str, str]]:
    pairs = (entry.partition("@") for entry in _names(observation, "seen"))
    return [(name, place) for name, _, place in pairs]


def _holds(receptacle: str, thing: str) -> bool:
    """Whether a receptacle class can hold an object class, both lower case."""
    if thing in {lamp.lower() for lamps in rooms.LAMPS.values() for lamp in lamps}:
        return receptacle in {stand.lower() for stand in rooms.LAMP_STANDS}
    table = upstream.affordances().VAL_RECEPTACLE_OBJECTS
    return any(kind.lower() == receptacle and thing in map(str.lower, things) for kind, things in table.items())


def _openable(receptacle: str) -> bool:
    return receptacle in {kind.lower() for kind in upstream.affordances().OPENABLE_CLASS_LIST}


def play(episode: Episode, policy: Policy, horizon: int = HORIZON) -> tuple[bool, int]:
    """(won, steps) of a policy in an episode, at most `horizon` steps."""
    observation = episode.observation()
    for step in range(1, horizon + 1):
        result = episode.step(policy(observation))
        observation = result.observation
        if result.done:
            return result.success, step
    return False, horizon


def demonstrations(
    player: Player, tasks: Sequence[Task], runs: int, seed: int, expert: str = "search", wasted: float = 0.0
) -> Iterator[tuple[StepView, str]]:
    """(view, action) of `runs` episodes a task, each after 0-5 random admissible actions that are not shown.

    A pure function of its arguments. A share `wasted` of the steps only looks around. `expert` is "search" or
    "planner"; ValueError for another.
    """
    if expert not in ("search", "planner"):
        raise ValueError(f"unknown expert {expert!r} (known: search, planner)")
    for task in tasks:
        for run in range(runs):
            yield from _demonstration(player.episode(task), random.Random(f"{seed}/{task.id}/{run}"), expert, wasted)


def _demonstration(episode: Episode, rng: random.Random, expert: str, wasted: float) -> Iterator[tuple[StepView, str]]:
    history: list[tuple[str, str]] = []
    observation = episode.observation()
    done = False
    for _ in range(rng.randint(0, MOST_RANDOM_ACTIONS)):
        action = rng.choice(observation.admissible)
        history.append((observation.text, action))
        result = episode.step(action)
        observation, done = result.observation, result.done
        if done:
            return
    policy = planner_policy(episode) if expert == "planner" else search_policy
    while not done and len(history) < HORIZON:
        idle = [command for command in observation.admissible if command.startswith(_IDLERS)]
        action = rng.choice(idle) if idle and rng.random() < wasted else policy(observation)
        yield StepView(observation, len(history), HORIZON, tuple(history)), action
        history.append((observation.text, action))
        result = episode.step(action)
        observation, done = result.observation, result.done
