"""Text Sokoban on a 6x6 board: a wall around 4x4 cells, boxes to push onto targets, mistakes that cannot be undone."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.worlds.world import Outcomes, World

SIZE = 4  # cells inside the wall, a side
_DIRECTIONS = {"go up": (-1, 0), "go down": (1, 0), "go left": (0, -1), "go right": (0, 1)}
_ATTEMPTS = 10_000
WORDS = ("wall", "floor", "player", "box", "target", "player_on_target", "box_on_target", ",", ".")

Cell = tuple[int, int]
State = tuple[Cell, frozenset[Cell]]  # player, boxes


@dataclass(frozen=True)
class Sokoban:
    """Rules of one level; states are (player, boxes)."""

    start: State
    targets: frozenset[Cell]
    walls: frozenset[Cell]
    task: str = "push all boxes onto targets"

    def moves(self, state: Hashable) -> Mapping[str, Outcomes]:
        """Steps and pushes that move something; walking into a wall or a stuck box is not admissible."""
        found: dict[str, Outcomes] = {}
        for command, direction in _DIRECTIONS.items():
            after = self._after(state, direction)
            if after is not None:
                found[command] = ((1.0, after),)
        return found

    def _after(self, state: Any, direction: Cell) -> State | None:
        player, boxes = state
        ahead = _plus(player, direction)
        if not self._free(ahead):
            return None
        if ahead not in boxes:
            return ahead, boxes
        behind = _plus(ahead, direction)
        if not self._free(behind) or behind in boxes:
            return None
        return ahead, (boxes - {ahead}) | {behind}

    def _free(self, cell: Cell) -> bool:
        return 0 <= cell[0] < SIZE and 0 <= cell[1] < SIZE and cell not in self.walls

    def won(self, state: Any) -> bool:
        return bool(state[1] == self.targets)

    def lost(self, state: Any) -> bool:
        """Never by itself: a stuck box does not end the episode, as in the game."""
        return False

    def face(self, state: Any) -> str:
        """The inner cells row by row, one word a cell, rows ended by a comma."""
        return " , ".join(" ".join(self._word(state, (r, c)) for c in range(SIZE)) for r in range(SIZE)) + " ."

    def _word(self, state: State, cell: Cell) -> str:
        player, boxes = state
        if cell in self.walls:
            return "wall"
        if cell == player:
            return "player_on_target" if cell in self.targets else "player"
        if cell in boxes:
            return "box_on_target" if cell in self.targets else "box"
        return "target" if cell in self.targets else "floor"


def _plus(cell: Cell, direction: Cell) -> Cell:
    return cell[0] + direction[0], cell[1] + direction[1]


def sokoban(boxes: int = 1, walls: int = 1, shortest: int = 4, longest: int = 10, seed: int = 0) -> World:
    """A level drawn by `seed` whose shortest solution takes `shortest` to `longest` moves.

    Raises ValueError for 0 boxes, more than 2 (their states would be too many), or lengths that no level has.
    """
    if boxes not in (1, 2) or not 0 <= walls <= 3 or not 1 <= shortest <= longest:
        raise ValueError(
            f"sokoban needs 1 or 2 boxes, 0 to 3 walls and 1 <= shortest <= longest, "
            f"got {boxes}, {walls}, {shortest}, {longest}"
        )
    rng = np.random.default_rng(seed)
    cells = [(row, column) for row in range(SIZE) for column in range(SIZE)]
    for _ in range(_ATTEMPTS):
        order = [cells[i] for i in rng.permutation(len(cells))]
        targets, stands = frozenset(order[:boxes]), frozenset(order[boxes : 2 * boxes])
        player, stones = order[2 * boxes], frozenset(order[2 * boxes + 1 : 2 * boxes + 1 + walls])
        rules = Sokoban((player, stands), targets, stones)
        if shortest <= _solution_length(rules, longest) <= longest:
            return World.build("sokoban", rules)
    raise ValueError(f"no sokoban level of {shortest} to {longest} moves found with {boxes} boxes and {walls} walls")


def _solution_length(rules: Sokoban, limit: int) -> int:
    """Moves of the shortest solution; `limit + 1` when there is none within the limit."""
    seen, front = {rules.start}, [rules.start]
    for depth in range(limit + 1):
        if any(rules.won(state) for state in front):
            return depth
        following: list[State] = []
        for state in front:
            for direction in _DIRECTIONS.values():
                after = rules._after(state, direction)
                if after is not None and after not in seen:
                    seen.add(after)
                    following.append(after)
        front = following
    return limit + 1
