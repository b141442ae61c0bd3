"""What the engine needs to play one game, wherever it came from."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchmarks.alfworld import rooms

BLANK = "UNKNOWN GOAL"
_TASK = re.compile(r"Your task is to: (.*?)\.?\"")


@dataclass(frozen=True)
class GameData:
    """One game. `grammar` holds `BLANK` where the sentence goes, so that games share a parsed grammar."""

    id: str
    task_type: str
    domain: str
    problem: str
    grammar: str
    sentence: str

    @property
    def kind(self) -> str:
        """The subtask reported in tables."""
        return rooms.KINDS[self.task_type]

    @cached_property
    def digest(self) -> str:
        """sha256 over problem, domain, grammar and sentence."""
        parts = json.dumps([self.problem, self.domain, self.grammar, self.sentence])
        return hashlib.sha256(parts.encode()).hexdigest()

    def engine_data(self) -> dict[str, Any]:
        """What textworld's `PddlEnv.load` takes in place of a file."""
        return {
            "pddl_domain": self.domain,
            "grammar": self.grammar.replace(BLANK, self.sentence),
            "pddl_problem": self.problem,
            "solvable": True,
            "walkthrough": None,
        }


def split_grammar(grammar: str) -> tuple[str, str]:
    """(grammar with `BLANK` for the sentence, sentence) of a game file's grammar. ValueError when it has no task."""
    match = _TASK.search(grammar)
    if match is None:
        raise ValueError("the grammar names no task ('Your task is to: ...')")
    return grammar[: match.start(1)] + BLANK + grammar[match.end(1) :], match.group(1)
