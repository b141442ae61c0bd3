"""The nouns of a title, which the reward compares. Scores depend on the tagger, so every catalogue names its own.

`rules` needs nothing and is meant for made catalogues; `spacy:MODEL` is what published scores used (with differing
models); `table:FILE` takes a JSON object from title to nouns, for parity with a run elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

DEFAULT = "rules"
_KINDS = ("NOUN", "PROPN")
_WORD = re.compile(r"[^\W\d_]+(?:[-’'][^\W\d_]+)*")
_OTHER_WORDS = (
    "a an and at by for from in into of off on or over per the this to up with without your our you we it its that "
    "is are be can not no all any each very more most extra ultra super new best great good perfect nice free real "
    "easy big small large medium long short slim wide tall mini high low heavy light soft hard thick thin warm cool "
    "cold hot dry wet fresh clean pure natural organic raw whole black white red blue green yellow pink purple brown "
    "gray grey orange beige dark bright solid classic modern vintage casual formal daily portable wireless digital "
    "electric automatic manual adjustable removable reusable disposable durable flexible foldable compact lightweight "
    "waterproof stainless multi double single dual full half made set includes fits ready quick fast slow"
)
_OTHERS = frozenset(_OTHER_WORDS.split())
_ENDINGS = ("able", "ible", "less", "ful", "ous", "ive", "ly", "ed", "ish", "est")


class TaggerError(ValueError):
    """A tagger that cannot be had; the message names the way out."""


class Tagger(Protocol):
    """Finds nouns: lower case, in order, repeats included. `name` goes into the catalogue's record."""

    name: str

    def nouns(self, titles: Iterable[str]) -> Iterator[list[str]]:
        """The nouns of each title."""
        ...


def tagger(name: str) -> Tagger:
    """The tagger `rules`, `spacy:MODEL` or `table:FILE`. TaggerError for another, or one that is not installed."""
    kind, _, argument = name.partition(":")
    if kind == "rules" and not argument:
        return Rules()
    if kind == "spacy" and argument:
        return Spacy(argument)
    if kind == "table" and argument:
        return Table(Path(argument))
    raise TaggerError(f"unknown tagger {name!r} (known: rules, spacy:MODEL, table:FILE)")


class Rules:
    """Words that are no function words, common adjectives or of an adjective's or adverb's ending."""

    name = "rules-1"

    def nouns(self, titles: Iterable[str]) -> Iterator[list[str]]:
        return (self._of(title) for title in titles)

    @staticmethod
    def _of(title: str) -> list[str]:
        words = (word.lower() for word in _WORD.findall(title))
        return [word for word in words if word not in _OTHERS and not (len(word) > 4 and word.endswith(_ENDINGS))]


class Spacy:
    """A spaCy pipeline's NOUN and PROPN tokens."""

    def __init__(self, model: str) -> None:
        try:
            import spacy

            self._pipeline: Any = spacy.load(model, exclude=["ner", "parser", "lemmatizer"])
        except ImportError:
            raise TaggerError("the spaCy tagger needs a package: pip install 'creditbench[webshop-spacy]'") from None
        except OSError:
            raise TaggerError(f"spaCy has no model {model!r}; get it with: python -m spacy download {model}") from None
        self.name = f"{model}-{self._pipeline.meta['version']}"

    def nouns(self, titles: Iterable[str]) -> Iterator[list[str]]:
        for document in self._pipeline.pipe(titles, batch_size=256):
            yield [token.text.lower() for token in document if token.pos_ in _KINDS]


class Table:
    """Nouns looked up by title; the rules serve titles it lacks."""

    def __init__(self, path: Path) -> None:
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TaggerError(f"{path}: no table of nouns ({error})") from None
        if not isinstance(table, dict) or not all(_texts(nouns) for nouns in table.values()):
            raise TaggerError(f"{path}: no table of nouns (a JSON object from title to a list of nouns is needed)")
        self._table: dict[str, list[str]] = table
        self.name = f"table-{path.stem}"

    def nouns(self, titles: Iterable[str]) -> Iterator[list[str]]:
        rules = Rules()
        for title in titles:
            yield self._table[title] if title in self._table else next(rules.nouns([title]))


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, str) for element in value)
