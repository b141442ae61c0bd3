"""search-worlds for the tiny policy: what was read as facts, the menu of commands, compact prompts, an expert.

    [task] author birthplace silent harbor [seen] silent harbor author oskar janko ; silent harbor setting welden
    [prev] silent harbor [act]

Commands are the same tagged actions that a language model writes, in lower case: `<search> oskar janko </search>`.
"""

from __future__ import annotations

import functools

from benchmarks.base import Observation, StepView
from benchmarks.search_qa import worlds

_FIELDS = ("[task]", "[seen]", "[prev]", "[act]")
_TAGS = ("<search>", "</search>", "<answer>", "</answer>")
_SEPARATOR = " ; "


class WorldReader:
    """What an agent could note down by itself: the question's parts, facts in the order they were read, searches."""

    def __init__(self, question: str) -> None:
        self.kind, self.entity = worlds.read_question(question)
        self._facts: dict[worlds.Fact, None] = {}
        self._searched: list[str] = []

    def read(self, query: str, text: str) -> None:
        """Note a search and what it brought."""
        self._searched.append(query.lower())
        self._facts.update(dict.fromkeys(worlds.read_facts(text)))

    def entities(self) -> tuple[str, ...]:
        """Names seen so far, in order, the question's own first."""
        found = [name for subject, _, object_ in self._facts for name in (subject, object_)]
        return tuple(dict.fromkeys((self.entity, *found)))

    def commands(self) -> tuple[str, ...]:
        """Search for, or answer with, any name seen so far."""
        names = self.entities()
        return (*(search(name) for name in names), *(answer(name) for name in names))

    def facts(self) -> dict[str, str]:
        """The notes as texts."""
        return {
            "kind": self.kind,
            "entity": self.entity,
            "seen": _SEPARATOR.join(" ".join(fact) for fact in self._facts),
            "searched": _SEPARATOR.join(self._searched),
        }


def search(name: str) -> str:
    """The command that searches for a name."""
    return f"<search> {name} </search>"


def answer(name: str) -> str:
    """The command that answers with a name."""
    return f"<answer> {name} </answer>"


def words(text: str) -> list[str]:
    """Words of a compact prompt or a command; `" ".join` puts them back together."""
    return text.split()


@functools.cache
def lexicon() -> tuple[str, ...]:
    """Every word of compact prompts and commands."""
    return (*_FIELDS, *_TAGS, ";", *worlds.vocabulary())


def compact(view: StepView) -> str:
    """The prompt of one step, words separated by single spaces."""
    facts = view.observation.facts
    parts = ("[task]", facts["kind"].replace("_", " "), facts["entity"], "[seen]", facts["seen"], "[prev]",
             facts["searched"], "[act]")  # fmt: skip
    return " ".join(" ".join(parts).split())


def expert(observation: Observation) -> str:
    """The best command: follow the question's relations through the facts read; search where they end, answer at the
    end."""
    facts = observation.facts
    known: dict[tuple[str, str], str] = {}
    for fact in facts["seen"].split(_SEPARATOR) if facts["seen"] else ():
        subject, relation, object_ = _parts(fact)
        known.setdefault((subject, relation), object_)
    name = facts["entity"]
    for relation in worlds.KINDS[facts["kind"]][0]:
        if (name, relation) not in known:
            return search(name)
        name = known[name, relation]
    return answer(name)


def _parts(fact: str) -> worlds.Fact:
    parts = fact.split()
    place = next(i for i, word in enumerate(parts) if word in worlds.RELATIONS)
    return " ".join(parts[:place]), parts[place], " ".join(parts[place + 1 :])
