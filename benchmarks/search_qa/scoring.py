"""Is an answer right: exact match after normalization, and two further columns, token F1 and substring match.

Normalization (SQuAD, Rajpurkar et al. 2016, as Search-R1 uses it): lower case, delete ASCII punctuation, replace the
words a, an, the by a space, collapse white space. Ours composes accents (NFC) first and guards the empty string: four
NQ golds, such as "A+", normalize to nothing, which would make an empty answer right.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SPACES = str.maketrans(dict.fromkeys(string.punctuation, " "))


def normalize(text: str) -> str:
    """The text as it is compared: "The U.S.A.!" -> "usa". Unicode punctuation, numbers and dates stay as they are."""
    bare = unicodedata.normalize("NFC", text).lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def comparable(text: str) -> str:
    """`normalize`, unless that leaves nothing: then only case, accents and white space are unified."""
    return normalize(text) or " ".join(unicodedata.normalize("NFC", text).lower().split())


def exact_match(answer: str | None, golds: Iterable[str], legacy_empty: bool = False) -> bool:
    """Whether the answer equals any gold after normalization.

    No answer (None) and an empty one are wrong. A gold that would normalize to "" keeps its articles and punctuation,
    and so does the answer it is compared with. `legacy_empty` drops both guards, as in the published code: there an
    empty answer matches a gold such as "A+".
    """
    if answer is None:
        return False
    if legacy_empty:
        return any(normalize(answer) == normalize(gold) for gold in golds)
    return bool(answer.strip()) and any(comparable(answer) == comparable(gold) for gold in golds)


def f1(answer: str | None, golds: Iterable[str]) -> float:
    """Best token F1 over the golds, 0..1: harmonic mean of precision and recall of the bags of words (SQuAD)."""
    return _best(answer, golds, _token_f1)


def substring_match(answer: str | None, golds: Iterable[str]) -> float:
    """1 when a gold is a part of the answer after normalization, else 0."""
    return _best(answer, golds, lambda mine, gold: float(bool(gold) and gold in mine))


def mentions(text: str, golds: Iterable[str]) -> bool:
    """Whether whole words of the text spell a gold, with punctuation deleted or taken as spaces ("York-based")."""
    golds = list(golds)
    for form in (normalize, _spaced):
        padded = f" {form(text)} "
        if any(f" {gold} " in padded for gold in map(form, golds) if gold):
            return True
    return False


def _spaced(text: str) -> str:
    return normalize(text.translate(_SPACES))


def _best(answer: str | None, golds: Iterable[str], score: Callable[[str, str], float]) -> float:
    if answer is None or not answer.strip():
        return 0.0
    mine = comparable(answer)
    return max((score(mine, comparable(gold)) for gold in golds), default=0.0)


def _token_f1(mine: str, gold: str) -> float:
    left, right = Counter(mine.split()), Counter(gold.split())
    shared = (left & right).total()
    if not shared:
        return 0.0
    precision, recall = shared / left.total(), shared / right.total()
    return 2 * precision * recall / (precision + recall)
