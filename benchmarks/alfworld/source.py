"""From a task to its game, in this process or in a worker."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.alfworld import caches, engine, official, synth, upstream
from benchmarks.alfworld.episode import Episode, GraphSession, Session, StockSession
from benchmarks.alfworld.game_data import GameData
from benchmarks.alfworld.options import Options
from benchmarks.base import Task


def task_of(data: GameData, payload: dict[str, Any]) -> Task:
    """The task that stands for a game; `payload` says where `load_game` finds it."""
    return Task(id=data.id, kind=data.kind, payload=payload)


def official_payload(path: str) -> dict[str, Any]:
    """Where an official game lies, below `json_2.1.1` of $ALFWORLD_DATA."""
    return {"path": path}


def synth_payload(label: str, split: str, index: int) -> dict[str, Any]:
    """Where a generated game comes from: its label, split and index make it again anywhere."""
    return {"label": label, "split": split, "index": index}


@functools.lru_cache(maxsize=512)
def _generated(label: str, split: str, index: int) -> GameData:
    return synth.make_game(label, split, index)


def load_game(task: Task) -> GameData:
    """The game of a task. ValueError for a payload that is not ALFWorld's, or a game that is no longer the same."""
    payload = task.payload
    if "path" in payload:
        data = official.read_game(str(payload["path"]))
    elif "index" in payload:
        data = _generated(str(payload["label"]), str(payload["split"]), int(payload["index"]))
    else:
        raise ValueError(f"task {task.id!r} is not one of ALFWorld's: its payload names neither a path nor an index")
    if data.id != task.id:
        raise ValueError(f"task {task.id!r} leads to game {data.id!r}; make the task set again with this version")
    return data


class Player:
    """Starts episodes in this process. Slots that play one game share it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._graph = options.caches and caches.usable()
        self._games = engine.Games(options.engines, options.memo_games, options.memo_states, options.memo)
        self._stock: dict[int, Any] = {}  # slot -> environment

    def episode(self, task: Task, slot: int = 0) -> Episode:
        """A new episode of a task; with the stock engine, `slot` names the environment to reuse."""
        return Episode(task.id, self._session(load_game(task), slot), self._options.success_reward)

    def _session(self, data: GameData, slot: int) -> Session:
        if self._graph:
            return GraphSession(self._games.get(data))
        if slot not in self._stock:
            self._stock[slot] = upstream.stock_environment()
        return StockSession(self._stock[slot], data)
