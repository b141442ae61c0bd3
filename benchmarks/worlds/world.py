"""A small world whose dynamics are known: states, commands, the exact transition function, and a text face."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

NONSENSE = "nonsense"  # the last action of every world: never admissible, changes nothing
MAX_STATES = 20_000

Outcomes = Sequence[tuple[float, Hashable]]  # (chance, next state)


class Rules(Protocol):
    """How a world is written down: states are any hashable values, found by walking from the start."""

    @property
    def task(self) -> str: ...

    @property
    def start(self) -> Hashable: ...

    def moves(self, state: Hashable) -> Mapping[str, Outcomes]:
        """Admissible commands of a state that is neither won nor lost, and where each leads."""
        ...

    def won(self, state: Hashable) -> bool: ...

    def lost(self, state: Hashable) -> bool: ...

    def face(self, state: Hashable) -> str:
        """What an agent reads in this state."""
        ...


@dataclass(frozen=True, eq=False)
class World:
    """A finite Markov decision process with a text face.

    actions     commands; the last one is NONSENSE
    faces       [states] what an agent reads; states with equal faces are aliased
    goal, dead  [states] bool: the episode ends there, with or without success
    admissible  [states, actions] bool
    target      [states, actions, outcomes] next state; a command that is not admissible stays
    chance      [states, actions, outcomes] probabilities, 1 in sum
    """

    name: str
    task: str
    actions: tuple[str, ...]
    faces: tuple[str, ...]
    start: int
    goal: np.ndarray
    dead: np.ndarray
    admissible: np.ndarray
    target: np.ndarray
    chance: np.ndarray

    @classmethod
    def build(cls, name: str, rules: Rules) -> World:
        """Walk from the start through everything that can happen; ValueError beyond MAX_STATES states."""
        number: dict[Hashable, int] = {rules.start: 0}
        found: list[Hashable] = [rules.start]
        moves: list[Mapping[str, Outcomes]] = []
        for state in found:
            ended = rules.won(state) or rules.lost(state)
            moves.append({} if ended else rules.moves(state))
            for outcomes in moves[-1].values():
                for _, following in outcomes:
                    if following not in number:
                        number[following] = len(found)
                        found.append(following)
            if len(found) > MAX_STATES:
                raise ValueError(f"world {name!r} has more than {MAX_STATES} states; make it smaller")
        actions = (*dict.fromkeys(command for options in moves for command in options), NONSENSE)
        admissible, target, chance = _tables(moves, number, actions)
        return cls(
            name=name,
            task=rules.task,
            actions=actions,
            faces=tuple(rules.face(state) for state in found),
            start=0,
            goal=np.array([rules.won(state) for state in found]),
            dead=np.array([rules.lost(state) and not rules.won(state) for state in found]),
            admissible=admissible,
            target=target,
            chance=chance,
        )

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.faces)

    @cached_property
    def ended(self) -> np.ndarray:
        """[states] bool: goal or dead."""
        return self.goal | self.dead

    @cached_property
    def support(self) -> np.ndarray:
        """[states, actions] bool: what a policy may do, the admissible commands and NONSENSE."""
        support = self.admissible.copy()
        support[:, -1] = True
        return support

    @property
    def deterministic(self) -> bool:
        """Whether every command has one outcome."""
        return bool(np.all((self.chance == 0) | (self.chance == 1)))

    @cached_property
    def engine_keys(self) -> tuple[str, ...]:
        """[states] texts that tell all states apart."""
        return tuple(f"state {number}" for number in range(self.states))

    @cached_property
    def keys_with_commands(self) -> tuple[str, ...]:
        """[states] the face and the admissible commands."""
        return tuple(
            "\n".join((face, *(command for command, ok in zip(self.actions, row, strict=True) if ok)))
            for face, row in zip(self.faces, self.admissible, strict=True)
        )

    def keys(self, name: str) -> tuple[str, ...]:
        """[states] state keys: "observation", "observation+admissible", or "engine" (also called "full")."""
        known = {
            "observation": self.faces,
            "observation+admissible": self.keys_with_commands,
            "full": self.engine_keys,
            "engine": self.engine_keys,
        }
        if name not in known:
            raise ValueError(f"unknown state key {name!r} (known: {', '.join(known)})")
        return known[name]

    def aliased(self, share: float, seed: int) -> World:
        """The world with a share of its states that go on showing the face of another one, in pairs.

        Raises ValueError for a share outside [0, 1].
        """
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"aliasing must lie between 0 and 1, got {share}")
        going = np.flatnonzero(~self.ended)
        chosen = np.random.default_rng(seed).permutation(going)[: int(share * len(going)) // 2 * 2]
        faces = list(self.faces)
        for first, second in chosen.reshape(-1, 2):
            faces[second] = faces[first]
        return replace(self, faces=tuple(faces))


def _tables(
    moves: Sequence[Mapping[str, Outcomes]], number: Mapping[Hashable, int], actions: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """admissible, target and chance of `World`."""
    states = len(moves)
    width = max((len(outcomes) for options in moves for outcomes in options.values()), default=1)
    admissible = np.zeros((states, len(actions)), dtype=bool)
    target = np.broadcast_to(np.arange(states)[:, None, None], (states, len(actions), width)).copy()
    chance = np.zeros((states, len(actions), width))
    chance[:, :, 0] = 1.0
    column = {command: place for place, command in enumerate(actions)}
    for state, options in enumerate(moves):
        for command, outcomes in options.items():
            row = column[command]
            admissible[state, row] = True
            chance[state, row] = 0.0
            for place, (probability, following) in enumerate(outcomes):
                target[state, row, place] = number[following]
                chance[state, row, place] = probability
    if not np.allclose(chance.sum(-1), 1.0):
        raise ValueError("the chances of a command's outcomes must sum to 1")
    return admissible, target, chance
