"""Analysis of texts, and the index against a slow scorer written from the formula."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from webshop_golden import GOLDEN

from benchmarks.webshop import analyzer, postings
from benchmarks.webshop.index import Index, TooManyTerms, coded_length
from benchmarks.webshop.mapped import ForeignFile
from benchmarks.webshop.porter import stem
from benchmarks.webshop.postings import PostingsWriter

WORDS = [f"word{number}" for number in range(30)] + ["chair", "chairs", "sofa's", "the"]


def test_stems_of_real_words() -> None:
    expected = json.loads((GOLDEN / "stems.json").read_text(encoding="utf-8"))
    assert {word: stem(word) for word in expected} == expected


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Men's T-Shirts, 1,299.00 x.y", ["men", "t", "shirt", "1,299.00", "x.y"]),
        ("the of and", []),
        ("us assembly", ["us", "assembl"]),  # Snowball's porter has "u" and "assembli"
        ("Brand® Cream™ ©2020", ["brand", "®", "cream", "™", "©", "2020"]),
        ("4K a:b snake_case _", ["4k", "a:b", "snake_cas"]),
        ("l’oréal’s café", ["l’oréal", "café"]),
        ("漢字 カタカナ", ["漢", "字", "カタカナ"]),
        ("don't", ["don't"]),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert analyzer.terms(text) == terms


def test_long_words_are_cut() -> None:
    assert [len(term) for term in analyzer.terms("q" * 600)] == [255, 255, 90]


@given(st.text(max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_text_has_terms_without_spaces(text: str) -> None:
    for term in analyzer.terms(text):
        assert term
        assert not any(sign in term for sign in " \n\t")


@given(st.text(alphabet="abcXYZ019_.,:;'- !", max_size=40))
@settings(max_examples=300, deadline=None)
def test_the_quick_pattern_agrees_with_the_unicode_one(text: str) -> None:
    assert analyzer._ASCII.findall(text) == analyzer._UNICODE.findall(text)


def test_lengths_are_coded_in_one_byte() -> None:
    assert [coded_length(n) for n in (0, 7, 39, 40, 41, 42, 55, 56, 60, 87, 88, 100)] == [
        0, 7, 39, 40, 40, 42, 54, 56, 60, 84, 88, 96,
    ]  # fmt: skip
    codes = {coded_length(n) for n in range(100_000)}
    assert len(codes) < 256
    assert all(coded_length(n) == n for n in codes)


def _documents(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(0, 60))) for _ in range(count)]


def _index(folder: Path, documents: list[str], asins: list[str]) -> Index:
    writer = PostingsWriter(folder)
    for document in documents:
        writer.add(document)
    path = folder / "postings.bin"
    writer.write(path, "stamp", sorted(range(len(asins)), key=asins.__getitem__))
    entries = {term: (first, number) for term, first, number in writer.entries()}
    return Index(path, "stamp", entries.get)


def _slow_search(documents: list[str], asins: list[str], query: str, most: int) -> list[tuple[int, float]]:
    terms = [analyzer.terms(document) for document in documents]
    filled = sum(bool(words) for words in terms)
    average = sum(map(len, terms)) / filled
    scores: dict[int, float] = {}
    for term, count in Counter(analyzer.terms(query)).items():
        holders = [n for n, words in enumerate(terms) if term in words]
        idf = math.log(1 + (filled - len(holders) + 0.5) / (len(holders) + 0.5))
        for n in holders:
            norm = 0.9 * (0.6 + 0.4 * coded_length(len(terms[n])) / average)
            tf = terms[n].count(term)
            scores[n] = scores.get(n, 0) + count * idf * tf / (tf + norm)
    return sorted(scores.items(), key=lambda item: (-item[1], asins[item[0]]))[:most]


@pytest.mark.parametrize("absent", [0, 2000])  # documents without any of the words: a query matches many, or few
@pytest.mark.parametrize("seed", range(4))
def test_index_against_the_formula(tmp_path: Path, seed: int, absent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "RUN", 500)  # several runs
    documents = _documents(150, seed) + ["else"] * absent
    asins = [f"A{(7 * n) % len(documents):04}" for n in range(len(documents))]
    index = _index(tmp_path, documents, asins)
    rng = random.Random(seed)
    for _ in range(20):
        query = " ".join(rng.choices([*WORDS, "absent"], k=rng.randint(1, 6)))
        found, expected = index.search(query, 20), _slow_search(documents, asins, query, 20)
        assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=2e-5)
        clear = {n for n, score in expected if score > expected[-1][1] + 1e-4}
        assert clear <= {n for n, _ in found}


def test_equal_scores_go_by_asin(tmp_path: Path) -> None:
    asins = ["B9", "B1", "B5", "B3"]
    index = _index(tmp_path, ["oak chair"] * 4, asins)
    assert [asins[n] for n, _ in index.search("chair", 3)] == ["B1", "B3", "B5"]


def test_a_query_forgets_the_one_before(tmp_path: Path) -> None:
    index = _index(tmp_path, _documents(60, 0), [f"A{n}" for n in range(60)])
    first = index.search("word1 word2 chair", 50)
    index.search("word3 word4 chair", 50)
    assert index.search("word1 word2 chair", 50) == first


def test_queries_that_lucene_refuses(tmp_path: Path) -> None:
    index = _index(tmp_path, ["chair"], ["A1"])
    with pytest.raises(TooManyTerms, match="1025"):
        index.search(" ".join(f"w{n}" for n in range(1025)), 50)
    assert index.search("chair " + "w " * 5000, 50)


def test_an_empty_collection(tmp_path: Path) -> None:
    assert _index(tmp_path, ["the", ""], ["A1", "A2"]).search("chair", 50) == []


def test_foreign_and_cut_index(tmp_path: Path) -> None:
    _index(tmp_path, ["chair"], ["A1"])
    path = tmp_path / "postings.bin"
    with pytest.raises(ForeignFile, match="another catalogue"):
        Index(path, "other", {}.get)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ForeignFile, match="cut off"):
        Index(path, "stamp", {}.get)
    path.write_bytes(b"something else")
    with pytest.raises(ForeignFile, match="not of this version"):
        Index(path, "stamp", {}.get)
