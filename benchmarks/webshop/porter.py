"""Porter's stemmer as Lucene has it: the 1980 algorithm with its author's later changes, for lower-case words.

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the two rules of the author's own program
that the paper lacks (bli -> ble, logi -> log). Words of one or two letters stay as they are. Snowball's `porter`
differs, and other stems mean other search results.
"""

from __future__ import annotations

import itertools

_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("logi", "log"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


def stem(word: str) -> str:
    """The stem of a lower-case word."""
    if len(word) < 3:
        return word
    word = _plurals(word)
    word = _past_and_gerund(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(word, _STEP_2)
    word = _replace(word, _STEP_3)
    return _tidy(_drop(word))


def _plurals(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past_and_gerund(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        base = word.removesuffix(suffix)
        if base != word:
            return _restore(base) if _has_vowel(base) else word
    return word


def _restore(base: str) -> str:
    """What is left without -ed or -ing gets its e back, or loses a doubled consonant."""
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _double_consonant(base):
        return base if base[-1] in "lsz" else base[:-1]
    return base + "e" if _measure(base) == 1 and _short(base) else base


def _replace(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    """Only the longest suffix that fits is tried."""
    fits = [rule for rule in rules if word.endswith(rule[0])]
    if not fits:
        return word
    suffix, new = max(fits, key=lambda rule: len(rule[0]))
    base = word[: len(word) - len(suffix)]
    return base + new if _measure(base) > 0 else word


def _drop(word: str) -> str:
    fits = [suffix for suffix in _STEP_4 if word.endswith(suffix)]
    if not fits:
        return word
    suffix = max(fits, key=len)
    base = word[: len(word) - len(suffix)]
    if suffix == "ion" and not base.endswith(("s", "t")):
        return word
    return base if _measure(base) > 1 else word


def _tidy(word: str) -> str:
    if word.endswith("e"):
        base = word[:-1]
        measure = _measure(base)
        if measure > 1 or (measure == 1 and not _short(base)):
            word = base
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _consonants(word: str) -> list[bool]:
    """Per letter; y is a consonant at the start and after a vowel."""
    flags: list[bool] = []
    for letter in word:
        flags.append(letter not in "aeiou" and (letter != "y" or not flags or not flags[-1]))
    return flags


def _measure(word: str) -> int:
    """How many times a vowel is followed by a consonant: m of [C](VC)^m[V]."""
    flags = _consonants(word)
    return sum(not before and after for before, after in itertools.pairwise(flags))


def _has_vowel(word: str) -> bool:
    return not all(_consonants(word))


def _double_consonant(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _consonants(word)[-1]


def _short(word: str) -> bool:
    """Ends consonant, vowel, consonant, the last one not w, x or y."""
    flags = _consonants(word)
    return len(word) > 2 and flags[-3] and not flags[-2] and flags[-1] and word[-1] not in "wxy"
