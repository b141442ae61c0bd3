"""One episode: a session with a goal, what the agent is shown of it, and what it is worth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.base import Observation, StepResult
from benchmarks.webshop import menu, protocol, sight
from benchmarks.webshop.options import Options
from benchmarks.webshop.session import PriceOf, Session, Step, parse_action
from benchmarks.webshop.shop import Shop


class Episode:
    """Observations, rewards and counts of one session. RuntimeError when stepped after the purchase.

    The state keys are `observation` (what is shown, as published), `full` (page, product, options, page number and
    results) and `observation+admissible`.
    """

    def __init__(self, task_id: str, goal: Mapping[str, Any], shop: Shop, price_of: PriceOf, options: Options) -> None:
        self.task_id, self._options = task_id, options
        self.session = Session(shop, goal, price_of, options.show_attributes, task_id)
        self.purchases = self.noops = self.searches = 0
        self.score = 0.0
        self.parts: Mapping[str, Any] = {}
        self._over = False
        self._memory = sight.Memory()
        self._menu: dict[str, str] = {}
        self._look()

    def step(self, action: str) -> StepResult:
        """Do an action, or a short command. What the shop ignores changes nothing, costs a step and is marked."""
        if self._over:
            raise RuntimeError(f"the episode of {self.task_id} is over (something was bought); reset before acting")
        before = self.session.state
        action = self.official(action)
        step = self.session.step(action)
        admissible = step.accepted or self._listed(action)
        self._count(action, step, changed=self.session.state != before, admissible=admissible)
        self._look()
        won = step.done and self.score == 1.0
        return StepResult(self.observation(), self._reward(step), step.done, won, admissible, self.measures())

    def official(self, command: str) -> str:
        """The action that a short command of this page stands for; other texts as they are."""
        return self._menu.get(command, command)

    def _listed(self, action: str) -> bool:
        """Whether an action that did nothing was on the page's own list, as `click[search]` is, or the click on a
        value with a bracket in it."""
        clickables = self.session.page.clickables
        if "search" in clickables and parse_action(action) == ("click", "search"):
            return True
        return action in {f"click[{label}]" for label in clickables}

    def _count(self, action: str, step: Step, *, changed: bool, admissible: bool) -> None:
        self.searches += step.accepted and action.startswith("search")
        self.noops += admissible and not changed
        if step.done:
            self._over = True
            self.purchases += 1
            self.score, self.parts = step.reward, step.parts or {}

    def _reward(self, step: Step) -> float:
        if self._options.reward == "score":
            return float(step.reward)
        return self._options.success_reward if step.done and step.reward == 1.0 else 0.0

    def measures(self) -> dict[str, float]:
        """The original's score so far (0 before a purchase), and counts: purchases, searches, and actions that were
        allowed but changed nothing."""
        counts = {"purchases": self.purchases, "searches": self.searches, "noops": self.noops}
        return {"task_score": self.score, **counts}

    def _look(self) -> None:
        if self._options.commands == "short":
            self._menu = menu.commands(self.session.page, self.session.instruction)
            self._memory.see(self.session)

    def observation(self) -> Observation:
        """What the agent sees now."""
        session, options = self.session, self._options
        text = session.text(options.observation == "text_rich")
        shown = protocol.shown(text, session.instruction)
        clickables = tuple(session.page.clickables)
        short = options.commands == "short"
        admissible = tuple(self._menu) if short else tuple(f"click[{label}]" for label in clickables)
        facts = {"clickables": "\x1f".join(clickables), "search_bar": "yes" if session.page.has_search_bar else ""}
        if short:
            facts |= sight.facts(session, self._memory)
        return Observation(shown, session.instruction, admissible, self._keys(shown, clickables), facts)

    def _keys(self, shown: str, clickables: tuple[str, ...]) -> dict[str, str]:
        state = self.session.state
        full = (state.page, state.position, sorted(state.options.items()), state.number, state.hits, state.sub)
        return {
            "observation": shown,
            "full": json.dumps(full),
            "observation+admissible": "\n".join((shown, *clickables)),
        }
