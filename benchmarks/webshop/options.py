"""What can be chosen about the WebShop benchmark."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

GOALS = ("fixed", "official", "verl_agent")
GOAL_KINDS = ("human", "synthetic")
REWARDS = ("success", "score")
OBSERVATIONS = ("text", "text_rich")
COMMANDS = ("official", "short")
SEARCHES = ("lucene", "bm25s", "pyserini")


@dataclass(frozen=True)
class Options:
    """Options of the benchmark; `make(**options)` takes them by name.

    data                "made" (60 hand-made and 940 generated products), "made-N" (N products), or the folder of a
                        catalogue built by `creditbench data webshop build`
    goals               "fixed" (one canonical list; test, eval and train are disjoint), "official" (the same order,
                        prices and bounds drawn in one stream) or "verl_agent" (its workers' own shuffles; they leak)
    goal_kind           "human" or "synthetic"; by default synthetic for verl_agent, else human
    seed                of prices and price bounds (and of verl_agent's workers)
    reward              "success" (`success_reward` if the score is 1, else 0) or "score" (the score, 0 to 1)
    success_reward      of a purchase whose score is 1, with reward=success
    history             how many past (observation, action) pairs `messages` shows; 2 in the published protocol
    observation         "text" or "text_rich"
    show_attributes     products have a page that tells their attributes
    legacy_queries      the original's hidden queries `<r>`, `<c>` and `<q>` work
    offer_click_search  prompts offer `click[search]`, which does nothing, as published ones do
    commands            "official", or "short": a menu of numbered commands for the tiny policy (see `menu`)
    search              "lucene" (exact), "bm25s" or "pyserini" (optional packages)
    search_index        the folder of pyserini's Lucene index

    Raises ValueError for a value out of range.
    """

    data: str = "made"
    goals: str = "fixed"
    goal_kind: str | None = None
    seed: int = 0
    reward: str = "success"
    success_reward: float = 10.0
    history: int = 2
    observation: str = "text"
    show_attributes: bool = False
    legacy_queries: bool = False
    offer_click_search: bool = True
    commands: str = "official"
    search: str = "lucene"
    search_index: str = ""

    def __post_init__(self) -> None:
        choices = {
            "goals": GOALS, "reward": REWARDS, "observation": OBSERVATIONS, "commands": COMMANDS, "search": SEARCHES,
        }  # fmt: skip
        if self.goal_kind is not None:
            choices["goal_kind"] = GOAL_KINDS
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"webshop option {name}={getattr(self, name)!r}{_hint(getattr(self, name), known)}")
        for name in ("history", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"webshop option {name}={getattr(self, name)!r}: needs 0 or more")
        if not self.success_reward > 0:
            raise ValueError(f"webshop option success_reward={self.success_reward!r}: needs a number above 0")

    @property
    def kind(self) -> str:
        """The kind of goals in use."""
        return self.goal_kind or ("synthetic" if self.goals == "verl_agent" else "human")

    @property
    def top_reward(self) -> float:
        """The reward of a perfect purchase."""
        return self.success_reward if self.reward == "success" else 1.0


def parse_options(**given: Any) -> Options:
    """Options by name. ValueError names an unknown option and the nearest known one."""
    known = [field.name for field in dataclasses.fields(Options)]
    for name in given:
        if name not in known:
            raise ValueError(f"unknown webshop option {name!r}{_hint(name, known)}")
    return Options(**given)


def _hint(word: Any, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(word), list(known), n=1)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    return f"{guess} (known: {', '.join(known)})"
