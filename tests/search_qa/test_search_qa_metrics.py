"""Pooled scores: exact fractions for every batch size and order; means, intervals, dashes."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import pytest

from analysis.stats import wilson
from benchmarks.search_qa.metrics import Tally, markdown, report
from benchmarks.search_qa.questions import DATA_SETS

SIZES = {known.name: known.rows for known in DATA_SETS}
RIGHT = {"nq": 1_520, "triviaqa": 6_731, "popqa": 6_049, "hotpotqa": 2_732, "2wikimultihopqa": 4_653, "musique": 305,
         "bamboogle": 36}  # fmt: skip


def outcomes() -> list[dict]:
    """51,713 questions in the published order. Of Bamboogle 35 of the first 124 are right, and the last one."""
    rows = []
    for name, size in SIZES.items():
        right = set(random.Random(name).sample(range(size), RIGHT[name]))
        if name == "bamboogle":
            right = set(range(0, 105, 3)) | {124}
        rows += [{"kind": name, "success": i in right, "steps": 3} for i in range(size)]
    return rows


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return outcomes()


def batches(rows: list[dict], size: int) -> list[list[dict]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


@pytest.mark.parametrize("size", [1, 7, 256, 512])
@pytest.mark.parametrize("order", ["published", "shuffled", "reversed"])
def test_exact_fractions_for_any_batch_size_and_order(rows, size, order):
    rows = list(rows)
    if order == "shuffled":
        random.Random(size).shuffle(rows)
    elif order == "reversed":
        rows.reverse()
    tally = Tally()
    for batch in batches(rows, size):
        tally.add(batch)
    assert tally.questions == 51_713
    for name in SIZES:
        assert tally.em(name) == Fraction(RIGHT[name], SIZES[name])
    made = report(tally, wilson)
    macro = float(sum(Fraction(RIGHT[name], SIZES[name]) for name in SIZES) / 7)
    assert made["means"]["macro"]["em"] == pytest.approx(macro, rel=1e-14)
    assert made["means"]["question_weighted"]["em"] == sum(RIGHT.values()) / 51_713


def test_means_of_batch_means_are_what_the_published_column_shows(rows):
    """GiGPO's 64.1 is 35 of 124 and the one question of the last batch: (35/124 + 1)/2. Pooled it is 36 of 125."""
    shares = []
    for batch in batches(rows, 512):
        mine = [row["success"] for row in batch if row["kind"] == "bamboogle"]
        if mine:
            shares.append(Fraction(sum(mine), len(mine)))
    assert shares == [Fraction(35, 124), Fraction(1)]
    assert round(float(100 * sum(shares) / 2), 1) == 64.1
    assert Tally().add(rows).em("bamboogle") == Fraction(36, 125)


def test_single_and_multi_hop_means(rows):
    means = report(Tally().add(rows), wilson)["means"]
    share = {name: RIGHT[name] / SIZES[name] for name in SIZES}
    single, multi = ("nq", "triviaqa", "popqa"), ("hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
    assert means["single_hop"]["em"] == pytest.approx(sum(share[name] for name in single) / 3)
    assert means["multi_hop"]["em"] == pytest.approx(sum(share[name] for name in multi) / 4)
    assert means["single_hop"]["n"] == 3_610 + 11_313 + 14_267
    for mean in means.values():
        assert mean["low"] < mean["em"] < mean["high"]


def test_intervals_are_wilsons(rows):
    sets = {entry["name"]: entry for entry in report(Tally().add(rows), wilson)["datasets"]}
    assert (sets["bamboogle"]["low"], sets["bamboogle"]["high"]) == wilson(36, 125)
    assert sets["bamboogle"]["high"] - sets["bamboogle"]["low"] > 0.14  # a gap under 8 points says nothing
    assert [entry["title"] for entry in sets.values()] == [
        "NQ†", "TriviaQA*", "PopQA*", "HotpotQA†", "2Wiki*", "MuSiQue*", "Bamboogle*"
    ]  # fmt: skip


def test_interval_of_a_mean_over_sets():
    """One set: its own interval. Two equal ones: half as wide by the square root of two."""
    one = [{"kind": "made", "success": i < 5, "steps": 1} for i in range(10)]
    two = [*one, *({**row, "kind": "other"} for row in one)]
    low, high = wilson(5, 10)
    alone, both = (report(Tally().add(rows), wilson)["means"]["macro"] for rows in (one, two))
    assert (alone["low"], alone["high"]) == pytest.approx((low, high))
    assert 0.5 - both["low"] == pytest.approx((0.5 - low) / 2**0.5)


def test_missing_sets_are_dashes_with_reasons():
    rows = [{"kind": "nq", "success": True, "steps": 2}, {"kind": "nq", "success": False, "steps": 2}]
    made = report(Tally().add(rows), wilson, {"musique": "no rows in /data/musique/dev.jsonl"})
    sets = {entry["name"]: entry for entry in made["datasets"]}
    assert len(sets) == 7
    assert (sets["nq"]["em"], sets["nq"]["n"]) == (0.5, 2)
    assert (sets["musique"]["em"], sets["musique"]["reason"]) == (None, "no rows in /data/musique/dev.jsonl")
    assert made["means"]["macro"]["em"] is None
    assert "triviaqa" in made["means"]["single_hop"]["reason"]
    assert made["means"]["question_weighted"]["em"] == 0.5
    text = markdown({"run": made})
    assert "| 50.0 [9.5, 90.5] n=2 | – | – |" in text
    assert "– MuSiQue*: no rows in /data/musique/dev.jsonl" in text
    json.dumps(made, allow_nan=False)


def test_behavior_is_pooled():
    rows = [
        {"kind": "nq", "success": True, "steps": 2, "searches": 1, "answered": True, "f1": 1.0, "substring_em": 1.0,
         "gold_in_information": True, "format_invalid": 0, "inadmissible": 0, "cut_texts": 3, "out_of_turns": False},
        {"kind": "nq", "success": False, "steps": 4, "searches": 2, "answered": False, "f1": 0.0, "substring_em": 0.0,
         "gold_in_information": False, "format_invalid": 2, "inadmissible": 1, "cut_texts": 0, "out_of_turns": True},
    ]  # fmt: skip
    behavior = report(Tally().add(rows), wilson)["behavior"]
    assert behavior == {
        "searches_per_question": 1.5, "short_results_per_question": 0.0, "cut_texts_per_question": 1.5,
        "answer_rate": 0.5, "gold_in_information_rate": 0.5, "out_of_turns_rate": 0.5, "f1": 0.5, "substring_em": 0.5,
        "turns": 3.0, "valid_action_rate": 0.5,
    }  # fmt: skip


def test_no_search_at_all_is_pointed_out():
    rows = [{"kind": "nq", "success": False, "steps": 1}]
    assert "No search was carried out" in markdown({"run": report(Tally().add(rows), wilson)})


def test_nothing_at_all():
    made = report(Tally(), wilson)
    assert made["means"]["question_weighted"]["em"] is None
    assert all(value is None for value in made["behavior"].values())
