"""One episode of a game: text in, text out, with the bookkeeping an agent could do by itself."""

from __future__ import annotations

from typing import Any, Protocol

from benchmarks.alfworld import engine, reading, upstream
from benchmarks.alfworld.game_data import GameData
from benchmarks.base import Observation, StepResult


class Session(Protocol):
    """A game being played; `admissible` is the engine's own list, sorted."""

    intro: str

    @property
    def admissible(self) -> tuple[str, ...]: ...

    @property
    def won(self) -> bool: ...

    @property
    def key(self) -> str: ...

    def step(self, command: str) -> str:
        """Feedback of a command."""
        ...


class GraphSession:
    """A walk through a `Game`."""

    def __init__(self, game: engine.Game) -> None:
        self.game, self.node, self.intro = game, game.root, game.intro

    @property
    def admissible(self) -> tuple[str, ...]:
        return self.node.admissible

    @property
    def won(self) -> bool:
        return self.node.won

    @property
    def key(self) -> str:
        return self.node.key

    def step(self, command: str) -> str:
        self.node, feedback = self.game.step(self.node, command)
        return feedback

    def plan(self) -> list[str]:
        """Commands that win from here, by the planner, which sees through closed doors."""
        return self.game.plan(self.node)


class StockSession:
    """textworld's own environment, as it comes. `environment` is reused: each one holds a library until exit."""

    def __init__(self, environment: Any, data: GameData) -> None:
        self._environment = environment
        with upstream.untouched():
            environment.load(data.engine_data())
            self._state = environment.reset()
            self._dynamic = engine.read_predicates(environment._pddl_state.task, data.grammar)[1]
        self.intro: str = self._state.feedback

    @property
    def admissible(self) -> tuple[str, ...]:
        return tuple(self._state["admissible_commands"])

    @property
    def won(self) -> bool:
        return bool(self._state["won"])

    @property
    def key(self) -> str:
        return engine.state_key(self._environment._pddl_state._facts, self._dynamic)

    def step(self, command: str) -> str:
        with upstream.untouched():
            self._state, _, _ = self._environment.step(command)
        return str(self._state.feedback)


class Episode:
    """Observations, rewards and facts of one session. RuntimeError when stepped after the win."""

    def __init__(self, task_id: str, session: Session, success_reward: float) -> None:
        self.task_id, self.session, self._success_reward = task_id, session, success_reward
        scene, _, task = session.intro.partition("Your task is to: ")
        self.goal = task.strip().removesuffix(".")
        self._goal = reading.read_goal(self.goal)
        self._text = f"{scene.replace(reading.BANNER, '').strip()}\n\nYour task is to: {task.strip()}"
        self.known = reading.Knowledge.at_start(session.intro)

    def step(self, command: str) -> StepResult:
        """Send a command. One that is not admissible changes nothing, costs a step and is marked."""
        if self.session.won:
            raise RuntimeError(
                f"the episode of {self.task_id} is over (the task was solved); reset before the next action"
            )
        admissible = command.strip() in self.session.admissible
        self._text = self.session.step(command)
        self.known.read(self._text)
        won = self.session.won
        reward = self._success_reward if won else 0.0
        return StepResult(self.observation(), reward, done=won, success=won, admissible=admissible)

    def observation(self) -> Observation:
        """What the agent sees now."""
        admissible = tuple(command for command in self.session.admissible if command != "help")
        return Observation(
            text=self._text,
            goal=self.goal,
            admissible=admissible,
            keys=self._keys(admissible),
            facts=reading.facts_of(self.known, self._goal),
        )

    def _keys(self, admissible: tuple[str, ...]) -> dict[str, str]:
        known, commands = self.known, "\n".join(admissible)
        places = ",".join(f"{name}@{known.places[name]}" for name in reading.in_order(list(known.places)))
        return {
            "observation": self._text,
            "observation+admissible": f"{self._text}\n{commands}",
            "full": "\n".join((self._text, known.location, known.holding, places, commands)),
            "engine": self.session.key,
        }
