"""Everything that was recorded from the original, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from webshop_golden import GOLDEN, golden_lines

from benchmarks.webshop import reward
from benchmarks.webshop.goals import Goal, GoalList
from benchmarks.webshop.session import Session
from benchmarks.webshop.shop import Shop, engine
from benchmarks.webshop.store import Store

SESSIONS = golden_lines("golden.jsonl")
FIELDS = {
    "Title": "title", "Price": "price_tag", "pricing": "prices", "options": "options", "Attributes": "attributes",
    "BulletPoints": "bullets", "Description": "description", "query": "query", "category": "category",
    "product_category": "product_category", "asin": "asin",
}  # fmt: skip


def _session(record: dict[str, Any], stores: dict[str, Store], goals: dict[str, GoalList], legacy: bool) -> Session:
    config = record["config"]
    store, found = stores[config["goals"]], goals[config["goals"]]
    goal = found.goal(found.order()[record["goal_index"]])
    assert {key: goal[key] for key in record["goal"]} == record["goal"]
    shop = Shop(store, engine("lucene", store), legacy_queries=legacy)
    return Session(shop, goal, found.prices.price, config["show_attrs"])


@pytest.mark.parametrize("record", SESSIONS, ids=[record["name"] for record in SESSIONS])
def test_session(
    record: dict[str, Any], original_stores: dict[str, Store], original_goals: dict[str, GoalList]
) -> None:
    session = _session(record, original_stores, original_goals, legacy=True)
    rich = record["config"]["observation_mode"] == "text_rich"
    assert session.text(rich) == record["initial"]["observation"]
    assert session.available() == record["initial"]["available"]
    for expected in record["steps"]:
        before = session.text(rich)
        step = session.step(expected["action"])
        if "raises" in expected:  # the original dies; here it is a no-op
            assert not step.accepted
            assert session.text(rich) == before
            continue
        assert session.text(rich) == expected["observation"]
        assert session.available() == expected["available"]
        assert (step.reward, type(step.reward), step.done) == (
            expected["reward"], type(expected["reward"]), expected["done"],
        )  # fmt: skip
        if "reward_info" in expected:
            assert step.parts == expected["reward_info"]
        if "session_options" in expected:
            assert session.state.options == expected["session_options"]


@pytest.mark.parametrize("kind", ["human", "synthetic"])
def test_goals(kind: str, ordered_goals: dict[str, list[Goal]]) -> None:
    expected = json.loads((GOLDEN / "golden_goals.json").read_text(encoding="utf-8"))[kind]
    found = ordered_goals[kind]
    assert [{key: goal[key] for key in like} for goal, like in zip(found, expected, strict=True)] == expected


def test_products(original_stores: dict[str, Store]) -> None:
    expected = json.loads((GOLDEN / "golden_products.json").read_text(encoding="utf-8"))
    found = list(original_stores["human"].products())
    for product, like in zip(found, expected, strict=True):
        values = {name: getattr(product, field) for name, field in FIELDS.items()}
        assert {**values, "pricing": list(values["pricing"]), "Rating": "N.A."} == like


def test_rewards(original_stores: dict[str, Store], ordered_goals: dict[str, list[Goal]]) -> None:
    records = golden_lines("golden_rewards.jsonl")
    for record in records:
        store, goal = original_stores[record["goals"]], ordered_goals[record["goals"]][record["goal_index"]]
        position = store.position(record["asin"])
        assert position is not None
        total, parts = reward.purchase_reward(store.product(position), record["options"], record["price"], goal)
        assert total == pytest.approx(record["reward"], abs=1e-9)
        assert parts == pytest.approx(record["info"], abs=1e-9)
    assert len(records) == 260


@pytest.mark.parametrize("record", golden_lines("golden_search.jsonl"), ids=lambda record: record["query"][:40])
def test_search(record: dict[str, Any], original_stores: dict[str, Store]) -> None:
    store = original_stores["human"]
    hits = store.index.search(record["query"], 50)
    assert [store.product(position).asin for position, _ in hits] == [asin for asin, _ in record["hits"]]
    assert [score for _, score in hits] == pytest.approx([score for _, score in record["hits"]], abs=1e-4)


def test_hidden_queries_are_words_unless_asked_for(
    original_stores: dict[str, Store], original_goals: dict[str, GoalList]
) -> None:
    record = next(record for record in SESSIONS if record["name"] == "special_query_category")
    session = _session(record, original_stores, original_goals, legacy=False)
    assert session.step("search[<c> beauty]").accepted
    assert "(Total results: 0)" in session.text()
    assert session.step("search[<r>]").accepted


def test_random_products_by_hidden_query(
    original_stores: dict[str, Store], original_goals: dict[str, GoalList]
) -> None:
    session = _session(SESSIONS[0], original_stores, original_goals, legacy=True)
    assert session.step("search[<r>]").accepted
    assert len(set(session.state.hits)) == 50
    assert not session.step("search[<c>]").accepted
