"""search-worlds: a made corpus of people, places and works, and two-hop questions about it.

Everything is drawn once from a fixed seed. No passage answers a question by itself: "In which city was the author of
Silent Harbor born?" needs the passage of the work, then that of its author. Every passage also names people and cities
that are not the answer. The best policy answers every question: in three actions (search, search, answer), and in two
for 60 of the 640, where one search happens to show both passages; the tests find this by exhaustive search.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.search_qa.questions import Question
from benchmarks.search_qa.retrieval.corpus import MemoryCorpus, Passage

NAME = "search-worlds-v1"
_SEED = 20261202
_PEOPLE, _WORKS, _CITIES, _COUNTRIES, _TRAIN = 160, 160, 24, 6, 480


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FIRST = _names("mirel dara tovin elsa karim nadia oskar pia ruben sanna teo ulla viktor wanda yara zeno")
_LAST = _names("abel brandt corso dimas engel falk grau holm ivers janko kolt lund moreau nagy olsen pavic")
_MOOD = _names("silent golden broken hidden winter crimson distant hollow gentle iron lonely paper salt stone")
_THING = _names("harbor garden mirror river lantern orchard bridge market window forest engine island castle road")
_CITY = _names(
    "arvik belmora cantel dorsa estrin fallow gorin hadria irsk jorvel kesk lomira mardin novell orlan pelagos quill "
    "rostan selby tarn umbria varso welden yarrow"
)
_COUNTRY = _names("albor candia drenova elbria fenland gallia")
_JOB = ("poet", "painter", "teacher", "doctor", "sailor")

# kind -> the two relations from the entity of the question to its answer, and the question
KINDS = {
    "author_birthplace": (("author", "born"), "In which city was the author of {} born?"),
    "setting_country": (("setting", "country"), "In which country does the story of {} take place?"),
    "birth_country": (("born", "country"), "In which country was {} born?"),
    "spouse_birthplace": (("spouse", "born"), "In which city was the spouse of {} born?"),
}
# relation -> the sentence that tells it: {0} the subject, {1} the object
_SENTENCES = {
    "born": "{0} is a {job} born in {1}.",
    "spouse": "{0} is married to {1}.",
    "mentor": "{0} studied under {1}.",
    "author": "{0} is a novel by {1}.",
    "translator": "{0} was translated by {1}.",
    "setting": "{0} tells a story set in {1}.",
    "country": "{0} is a city in {1}.",
    "mayor": "{0} has a mayor called {1}.",
    "capital": "{0} is a country with the capital {1}.",
}
RELATIONS = tuple(_SENTENCES)
_NAME = r"([A-Z][a-z]+(?: [A-Z][a-z]+)?)"
_PATTERNS = {
    name: re.compile(text.replace(".", r"\.").format(_NAME, _NAME, job="[a-z]+")) for name, text in _SENTENCES.items()
}

Fact = tuple[str, str, str]  # subject, relation, object; names in lower case


@dataclass(frozen=True)
class World:
    """The passages, the questions of both splits, and every fact behind them."""

    corpus: MemoryCorpus
    questions: dict[str, tuple[Question, ...]]
    facts: dict[tuple[str, str], str]


@functools.cache
def world() -> World:
    """The one world of this label; about 20 ms."""
    rng = random.Random(_SEED)
    facts = _facts(rng)
    passages = [Passage(f"w{i}", _title(name), text) for i, (name, text) in enumerate(_texts(facts, rng))]
    questions = list(_questions(facts))
    rng.shuffle(questions)
    splits = {"train": tuple(questions[:_TRAIN]), "eval": tuple(questions[_TRAIN:])}
    return World(MemoryCorpus(NAME, passages), splits, facts)


def _facts(rng: random.Random) -> dict[tuple[str, str], str]:
    people = _pick(rng, _FIRST, _LAST, _PEOPLE)
    works = _pick(rng, _MOOD, _THING, _WORKS)
    cities, countries = _CITY[:_CITIES], _COUNTRY[:_COUNTRIES]
    facts: dict[tuple[str, str], str] = {}
    for i, city in enumerate(cities):
        facts[city, "country"] = countries[i % len(countries)]
        facts[city, "mayor"] = rng.choice(people)
    for i, country in enumerate(countries):
        facts[country, "capital"] = cities[i]
    for one, other in zip(people[::2], people[1::2], strict=True):
        facts[one, "spouse"], facts[other, "spouse"] = other, one
    for person in people:
        facts[person, "born"] = rng.choice(cities)
        facts[person, "mentor"] = rng.choice([p for p in people if p not in (person, facts[person, "spouse"])])
    for work in works:
        facts[work, "author"], facts[work, "translator"] = rng.sample(people, 2)
        facts[work, "setting"] = rng.choice([city for city in cities if city != facts[facts[work, "author"], "born"]])
    return facts


def _pick(rng: random.Random, heads: Sequence[str], tails: Sequence[str], count: int) -> list[str]:
    return rng.sample([f"{head} {tail}" for head in heads for tail in tails], count)


def _texts(facts: dict[tuple[str, str], str], rng: random.Random) -> Iterator[tuple[str, str]]:
    """(name, text of its passage), sentences in a drawn order."""
    for name in dict.fromkeys(subject for subject, _ in facts):
        told = [
            _SENTENCES[relation].format(_title(name), _title(object_), job=rng.choice(_JOB))
            for (subject, relation), object_ in facts.items()
            if subject == name
        ]
        rng.shuffle(told)
        yield name, " ".join(told)


def _questions(facts: dict[tuple[str, str], str]) -> Iterator[Question]:
    for kind, ((first, second), text) in KINDS.items():
        for (subject, relation), middle in facts.items():
            if relation == first:
                name = f"{kind}/{subject.replace(' ', '-')}"
                yield Question(name, text.format(_title(subject)), (_title(facts[middle, second]),), kind)


def _title(name: str) -> str:
    return name.title()


# --- reading ----------------------------------------------------------------------------------------------------------


def read_question(question: str) -> tuple[str, str]:
    """(kind, entity in lower case) of a question; ("", "") for any other text."""
    for kind, (_, text) in KINDS.items():
        found = re.fullmatch(re.escape(text).replace(r"\{\}", _NAME), question)
        if found:
            return kind, found[1].lower()
    return "", ""


def read_facts(text: str) -> list[Fact]:
    """The facts that passages state, in the order of the text."""
    found = [
        (match.start(), (match[1].lower(), relation, match[2].lower()))
        for relation, pattern in _PATTERNS.items()
        for match in pattern.finditer(text)
    ]
    return [fact for _, fact in sorted(found)]


def vocabulary() -> tuple[str, ...]:
    """Every word of names, kinds and relations."""
    kinds = [word for kind in KINDS for word in kind.split("_")]
    names = (*_FIRST, *_LAST, *_MOOD, *_THING, *_CITY, *_COUNTRY)
    return tuple(dict.fromkeys((*kinds, *RELATIONS, *names)))
