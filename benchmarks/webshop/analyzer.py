"""From text to search terms, as Lucene's English analyzer does it.

Unicode word segmentation (UAX #29, with pictographs such as the trademark sign as words), possessives off, lower case,
stop words out, Porter stems. Documents and queries go through the same steps.
"""

from __future__ import annotations

import functools
import re

import regex

from benchmarks.webshop.porter import stem

_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
_LONGEST = 255  # Lucene cuts longer words into pieces
_POSSESSIVES = ("'s", "’s", "＇s", "'S", "’S", "＇S")


def _pattern(letter: str, digit: str, katakana: str, joiner: str, in_word: str, in_number: str) -> str:
    """A word: letters and digits in any order, with single marks inside words and inside numbers."""
    run = f"(?:(?:{letter}(?:{in_word}{letter})*|{digit}(?:{in_number}{digit})*)+"
    run += f"|{katakana}+)" if katakana else ")"
    return f"{joiner}*{run}(?:{joiner}+{run})*{joiner}*"


_ASCII = re.compile(_pattern("[a-zA-Z]", "[0-9]", "", "_", "[:.']", "[,;.']"))
_EXTEND = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"
_WORD = _pattern(
    rf"[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{_EXTEND}",
    rf"\p{{WB=Numeric}}{_EXTEND}",
    rf"(?:\p{{WB=Katakana}}{_EXTEND})",
    rf"(?:\p{{WB=ExtendNumLet}}{_EXTEND})",
    rf"[:\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_EXTEND}",
    rf"[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_EXTEND}",
)
_SYMBOL = rf"\p{{Extended_Pictographic}}{_EXTEND}(?:\u200d\p{{Extended_Pictographic}}{_EXTEND})*"
_FLAG = r"\p{Regional_Indicator}{2}"
_LETTERS_WITHOUT_SPACES = rf"\p{{Line_Break=SA}}+|\p{{Script=Han}}{_EXTEND}|\p{{Script=Hiragana}}{_EXTEND}"
_UNICODE = regex.compile(f"{_WORD}|{_FLAG}|{_SYMBOL}|{_LETTERS_WITHOUT_SPACES}")


def terms(text: str) -> list[str]:
    """The search terms of a text, in order, repeats included."""
    found = _ASCII.findall(text) if text.isascii() else _UNICODE.findall(text)
    listed = (term_of(word) for word in _cut(found))
    return [term for term in listed if term]


def _cut(words: list[str]) -> list[str]:
    if all(len(word) <= _LONGEST for word in words):
        return words
    return [word[start : start + _LONGEST] for word in words for start in range(0, len(word), _LONGEST)]


@functools.lru_cache(maxsize=200_000)
def term_of(word: str) -> str:
    """The term of one word; "" for a stop word."""
    if word.endswith(_POSSESSIVES):
        word = word[:-2]
    word = word.lower()
    return "" if word in STOP_WORDS else stem(word)
