"""One question: moves in, observations out; state keys, scoring and measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.base import Observation, StepResult, Task
from benchmarks.search_qa import prompts, scoring
from benchmarks.search_qa.actions import Move, last_answer
from benchmarks.search_qa.limits import Cutter
from benchmarks.search_qa.notes import WorldReader
from benchmarks.search_qa.profiles import Profile
from benchmarks.search_qa.retrieval.base import Hit
from benchmarks.search_qa.rewards import format_reward


@dataclass(frozen=True)
class Rules:
    """What all episodes of a benchmark share."""

    profile: Profile
    generations: int
    top_k: int
    cutter: Cutter
    legacy_empty: bool
    format_reward: bool
    success_reward: float
    world: bool  # a made world: admissible commands and facts for the tiny policy
    retrieval: str = ""  # fingerprint of the engine


@dataclass
class _Counts:
    turns: int = 0
    searches: int = 0
    short: int = 0
    cut: int = 0


@dataclass
class Episode:
    """A question being answered. `act` takes an action and says what to retrieve; `finish` takes what was found."""

    task: Task
    rules: Rules
    _counts: _Counts = field(default_factory=_Counts)
    _text: str = ""
    _parts: list[str] = field(default_factory=list)  # actions and observations in turn
    _gold_seen: bool = False  # in some passage that could be read
    _shown: str = ""  # the newest information; the question before any
    _documents: tuple[str, ...] = ()
    _all_documents: frozenset[str] = frozenset()
    _move: Move | None = None
    _answer: str | None = None
    _ended: str = ""  # "", "answered" or "out of turns"

    def __post_init__(self) -> None:
        self._text = self._shown = self.question
        self._reader = WorldReader(self.question) if self.rules.world else None

    @property
    def question(self) -> str:
        """The question's text."""
        return str(self.task.payload["question"])

    @property
    def golds(self) -> list[str]:
        """Its right answers."""
        return list(self.task.payload["golden_answers"])

    # ------------------------------------------------------------------------------------------------ moves
    def act(self, action: str) -> str | None:
        """Take an action; the query to retrieve, or None. RuntimeError after the end.

        A search as the last action is not sent: nobody could read what it finds.
        """
        if self._ended:
            raise RuntimeError(f"the episode of {self.task.id} is over ({self._ended}); reset before the next action")
        self._move = self.rules.profile.read(action)
        self._counts.turns += 1
        self._parts.append(action)
        last = self._counts.turns >= self.rules.generations
        if self._move.kind == "answer":
            self._ended = "answered"
        elif last:
            self._ended = "out of turns"
        elif self._move.kind == "search":
            return self._move.text
        return None

    def finish(self, hits: Sequence[Hit] | None) -> StepResult:
        """The result of the action; `hits` are None where nothing was retrieved."""
        assert self._move is not None
        if self._ended:
            return self._end()
        if hits is None:
            self._text = self.rules.profile.invalid
        else:
            self._inform(hits)
        self._parts.append(self._text)
        return self._result(reward=0.0, success=False)

    def _inform(self, hits: Sequence[Hit]) -> None:
        shown = self.rules.profile.information(hits, self.rules.cutter)
        self._text = shown.text
        self._counts.searches += 1
        self._counts.cut += shown.cut
        self._counts.short += len(hits) < self.rules.top_k
        self._gold_seen = self._gold_seen or scoring.mentions(shown.plain, self.golds)
        if hits:  # an empty result changes no state
            self._shown = self._text
            self._documents = tuple(sorted({hit.id for hit in hits}))
            self._all_documents |= frozenset(self._documents)
        if self._reader is not None:
            self._reader.read(self._move.text if self._move else "", self._text)

    def _end(self) -> StepResult:
        self._text = ""
        self._answer = self._scored_answer()
        right = scoring.exact_match(self._answer, self.golds, self.rules.legacy_empty)
        return self._result(self._reward(right), right)

    def _scored_answer(self) -> str | None:
        profile = self.rules.profile
        if profile.scores_transcript:
            prompt = prompts.search_r1_prompt(self.question) if profile.reads_prompt else ""
            return last_answer(prompt + "".join(self._parts), least=2 if profile.reads_prompt else 1)
        return self._move.text if self._move is not None and self._move.kind == "answer" else None

    def _reward(self, right: bool) -> float:
        if not self.rules.format_reward:
            return self.rules.success_reward * right
        shaped = format_reward("".join(self._parts), self.golds, answered=self._answer is not None, right=right)
        return self.rules.success_reward * shaped

    # ------------------------------------------------------------------------------------------------ what is seen
    def _result(self, reward: float, success: bool) -> StepResult:
        assert self._move is not None
        return StepResult(
            self.observation(), reward, done=bool(self._ended), success=success,
            admissible=self._move.kind != "invalid", measures=self.measures(),
        )  # fmt: skip

    def observation(self) -> Observation:
        """What the agent sees now."""
        reader = self._reader
        return Observation(
            text=self._text,
            goal=self.question,
            admissible=reader.commands() if reader is not None else (),
            keys=self._keys(),
            facts=reader.facts() if reader is not None else {},
        )

    def _keys(self) -> dict[str, str]:
        """State keys. What brought nothing new, or was invalid, keeps the key of the state it was done in."""
        if self._ended:
            lost = "unanswered" if self._ended == "out of turns" else "wrong"
            return dict.fromkeys(STATE_KEYS, "right" if self._won() else lost)
        return {
            "doc_set": "\n".join((self.question, *self._documents)),
            "doc_history": "\n".join((self.question, *sorted(self._all_documents))),
            "text_similarity": self._shown,
            "embedding": self._shown,
        }

    def _won(self) -> bool:
        return scoring.exact_match(self._answer, self.golds, self.rules.legacy_empty)

    def measures(self) -> dict[str, str | float]:
        """The episode so far; see docs/search_qa.md. F1 and substring match stand beside exact match, never for it."""
        return {
            "profile": self.rules.profile.name,
            "retrieval": self.rules.retrieval,
            "answered": self._answer is not None,
            "f1": scoring.f1(self._answer, self.golds),
            "substring_em": scoring.substring_match(self._answer, self.golds),
            "searches": self._counts.searches,
            "short_results": self._counts.short,
            "cut_texts": self._counts.cut,
            "gold_in_information": self._gold_seen,
            "out_of_turns": self._ended == "out of turns" and self._answer is None,
        }


STATE_KEYS = ("doc_set", "doc_history", "text_similarity", "embedding")
