"""Goals, their splits, prices and bounds; the reward's corners; what can be reached."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.webshop import WebShop, goals, make, oracle, reward
from benchmarks.webshop.build import build
from benchmarks.webshop.goals import Goal, GoalList
from benchmarks.webshop.products import Product
from benchmarks.webshop.store import Store


@pytest.fixture(scope="module")
def fixed() -> WebShop:
    return make()


@pytest.fixture(scope="module")
def family() -> WebShop:
    with pytest.warns(UserWarning, match="test goals are trained on"):
        return make(goals="verl_agent")


# --- splits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "bounds"),
    [
        (12_087, {"test": (0, 500), "eval": (500, 1500), "train": (1500, 12_087)}),
        (6000, {"test": (0, 500), "eval": (500, 1500), "train": (1500, 6000)}),
        (600, {"test": (0, 50), "eval": (50, 150), "train": (150, 600)}),
        (3, {"test": (0, 1), "eval": (1, 2), "train": (2, 3)}),
    ],
)
def test_split_bounds(total: int, bounds: dict[str, tuple[int, int]]) -> None:
    assert {name: (r.start, r.stop) for name, r in goals.split_bounds(total).items()} == bounds


def test_training_and_evaluation_are_disjoint_and_complete(fixed: WebShop) -> None:
    ids = {split: {task.id for task in fixed.task_set(split).tasks} for split in fixed.splits()}
    assert all(one.isdisjoint(other) for one, other in itertools.combinations(ids.values(), 2))
    assert len(set().union(*ids.values())) == len(fixed.goals)


def test_one_list_for_any_number_of_workers(fixed: WebShop) -> None:
    """16 groups of 8 in training, 128 in evaluation: each pool is asked for the same tasks, however it is split."""
    train, test = fixed.task_set("train", 128), fixed.task_set("eval", 128)
    assert {task.id for task in train.tasks}.isdisjoint(task.id for task in test.tasks)
    for workers in (1, 16, 128):
        other = make()  # as a process of its own makes it
        share = 128 // workers
        parts = [other.task_set("train", share, worker * share) for worker in range(workers)]
        assert [task for part in parts for task in part.tasks] == list(train.tasks)
        assert [digest for part in parts for digest in part.digests] == list(train.digests)
    assert make().task_set("eval", 128).hash == test.hash
    goal_of = {task.id: task.payload for task in train.tasks}
    pool = fixed.pool(128)
    shown = pool.reset([task for task in train.tasks[:16] for _ in range(8)])
    assert [o.goal for o in shown] == [goal_of[t.id]["instruction_text"] for t in train.tasks[:16] for _ in range(8)]


def test_manifest(fixed: WebShop) -> None:
    manifest = fixed.task_set("test").manifest()
    assert manifest["name"] == "webshop-made-1000-human-fixed"
    assert manifest["count"] == len(manifest["ids"]) == fixed.size("test")
    other = make(seed=1).task_set("test").manifest()
    assert other["ids"] == manifest["ids"]
    assert other["hash"] != manifest["hash"]  # other bounds


def test_fixed_and_official_have_one_order(fixed: WebShop) -> None:
    official = make(goals="official")
    for split in fixed.splits():
        assert [t.id for t in official.task_set(split).tasks] == [t.id for t in fixed.task_set(split).tasks]
    assert official.task_set("test").hash != fixed.task_set("test").hash


def test_fixed_goals_do_not_depend_on_what_else_is_there(
    tmp_path: Path, rows: Callable[..., Any], files: Callable[..., Any]
) -> None:
    made = rows(20, pricing="$20.00 - $60.00")
    build(files(made), tmp_path / "more")
    build(files(made[:10]), tmp_path / "less")
    more, less = (GoalList(Store(tmp_path / name), "synthetic", "fixed", 0) for name in ("more", "less"))
    alone = [{**goal, "weight": 0} for goal in less]
    assert [{**more.goal(number), "weight": 0} for number in range(10)] == alone


def test_sizes_and_names_of_splits(fixed: WebShop) -> None:
    with pytest.raises(ValueError, match=r"unknown WebShop split 'valid' \(known: train, eval, test\)"):
        fixed.task_set("valid")
    with pytest.raises(ValueError, match="has 69 tasks: 70 after offset 0"):
        fixed.task_set("test", 70)


# --- the verl-agent family --------------------------------------------------------------------------------------------


def test_verl_agent_workers_shuffle_for_themselves(family: WebShop) -> None:
    found = family.goals
    first = family.task_set("train", 16)
    places = np.random.RandomState(0).choice(range(500, len(found)), size=16, replace=False).tolist()
    expected = []
    for worker, place in enumerate(places):
        order = list(range(len(found)))
        random.Random(worker).shuffle(order)
        expected.append(goals.goal_id(found.goal(order[place])))
    assert [task.id.split("/", 1)[1] for task in first.tasks] == expected
    assert family.options.kind == "synthetic"


def test_verl_agent_leaks(family: WebShop) -> None:
    trained = {task.id.split("/", 1)[1] for task in family.task_set("train").tasks}
    tested = {task.id.split("/", 1)[1] for task in family.task_set("test").tasks}
    assert trained & tested
    assert "goals=fixed" in family.record()["warning"]
    assert family.size("test") == 128


# --- goals ------------------------------------------------------------------------------------------------------------


def test_combinations_go_through_all_options() -> None:
    options = {"size": ["s", "m"], "color": ["red", "blue", "tan"]}
    found = [goals.combination(options, variant) for variant in range(6)]
    expected = [{"color": c, "size": s} for c, s in itertools.product(options["color"], options["size"])]
    assert found == expected
    assert [list(chosen) for chosen in found] == [["color", "size"]] * 6


@given(st.floats(0, 1500), st.integers(0, 1000))
def test_bounds_are_above_the_price(price: float, seed: int) -> None:
    bound = goals.draw_bound(random.Random(seed), price)
    if price >= 980:
        assert bound is None
    else:
        assert bound is not None
        assert price + 10 < bound <= price + 40
        assert bound % 10 == 0


def test_goals_without_a_bound_say_nothing_of_the_price(
    tmp_path: Path, rows: Callable[..., Any], files: Callable[..., Any]
) -> None:
    build(files(rows(5, pricing="$2,000.00")), tmp_path / "store")
    goal = GoalList(Store(tmp_path / "store"), "synthetic", "fixed", 0).goal(0)
    assert goal["instruction_text"] == "Find me wooden chairs"
    assert goal["price_upper"] == 1_000_000


def test_a_catalogue_without_human_goals(tmp_path: Path, rows: Callable[..., Any], files: Callable[..., Any]) -> None:
    build(files(rows(5)), tmp_path / "store")
    with pytest.raises(ValueError, match=r"0 human goals.*goal_kind=synthetic"):
        make(data=str(tmp_path / "store")).task_set("train")
    assert len(make(data=str(tmp_path / "store"), goal_kind="synthetic").task_set("train")) == 3


def test_goals_take_little_memory(tmp_path: Path, rows: Callable[..., Any], files: Callable[..., Any]) -> None:
    build(
        files(rows(3000, customization_options={"size": [{"value": f"s{n}"} for n in range(10)]})), tmp_path / "store"
    )
    store = Store(tmp_path / "store")
    store.product(0)
    for prices, bytes_a_product in (("fixed", 0), ("sequential", 10)):
        tracemalloc.start()
        found = GoalList(store, "synthetic", prices, 0)
        places = goals.held_out_places(found)
        found.goal(places["test"][0])
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert sum(map(len, places.values())) == len(found) == 30_000
        assert held < bytes_a_product * 3000 + 20_000


def test_shuffles_are_those_of_a_list(fixed: WebShop) -> None:
    plain = list(range(len(fixed.goals)))
    random.Random(233).shuffle(plain)
    assert fixed.goals.order().tolist() == plain


# --- reward -----------------------------------------------------------------------------------------------------------


def _product(**fields: Any) -> Product:
    values: dict[str, Any] = {
        "asin": "P1", "title": "Oak Chair", "price_tag": "$9.0", "prices": (9.0,), "options": {}, "attributes": ["oak"],
        "bullets": ["sturdy"], "description": "A chair.", "query": "chairs", "category": "garden",
        "product_category": "Home › Chairs", "nouns": ["oak", "chair"],
    }  # fmt: skip
    return Product(**{**values, **fields})


def _goal(**fields: Any) -> Goal:
    values = {
        "asin": "P1", "attributes": ["oak"], "goal_options": [], "price_upper": 10.0, "query": "chairs",
        "product_category": "Home › Chairs", "nouns": ["oak", "chair"],
    }  # fmt: skip
    return {**values, **fields}


def _total(product: Product, chosen: dict[str, str], goal: Goal, price: float = 9.0) -> float:
    return reward.purchase_reward(product, chosen, price, goal)[0]


def test_reward_by_hand() -> None:
    assert _total(_product(), {}, _goal()) == 1.0
    assert _total(_product(), {}, _goal(), price=10.01) == 0.5
    assert _total(_product(), {}, _goal(attributes=["oak", "velvet"])) == pytest.approx(2 / 3)
    assert _total(_product(), {}, _goal(attributes=["sturdy"])) == 1.0  # from the features
    assert _total(_product(), {"size": "small"}, _goal(goal_options=["small", "blue"])) == pytest.approx(3 / 4)


@pytest.mark.parametrize(
    ("shared", "query", "r_type"),
    [(0, "chairs", 0.0), (1, "chairs", 0.1), (2, "chairs", 1.0), (2, "sofas", 0.5), (5, "sofas", 1.0)],
)
def test_kind_of_product(shared: int, query: str, r_type: float) -> None:
    wanted = [f"noun{n}" for n in range(15)]
    product = _product(nouns=wanted[:shared], query=query, product_category="Other")
    assert reward.type_reward(product, _goal(nouns=wanted))["r_type"] == r_type


def test_a_title_without_nouns() -> None:
    assert reward.type_reward(_product(), _goal(nouns=[]))["title_score"] == 0.2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("small", "x-small", True), ("large", "x-large", True), ("9.5", "9.5 wide", True), ("small", "medium", False),
        ("pack of 2", "pack of 12", True), ("small", ("size", "small"), True), ("medium", ("size", "small"), False),
        ("", "small", False), ("é", "ü", False),
    ],
)  # fmt: skip
def test_similar(one: str, other: Any, same: bool) -> None:
    assert reward.similar(one, other) is same


def test_colors() -> None:
    assert reward.plain_color("navy blue") == "blue"  # the list's order decides, not the text's
    assert reward.plain_color("standard") == "tan"
    assert reward.plain_color(("size", "standard")) == ("size", "standard")
    assert reward.plain_color(("color", "white")) == "white"


# --- what can be reached ----------------------------------------------------------------------------------------------


def test_a_hidden_color_makes_a_synthetic_goal_unreachable() -> None:
    product = _product(options={"size": ["standard", "deluxe"]})
    for size, score in (("standard", 2 / 3), ("deluxe", 1.0)):
        found = oracle.ceiling(product, _goal(goal_options={"size": size}), 9.0)
        assert found.score == pytest.approx(score)


def test_made_goals_that_cannot_be_met(ordered_goals: dict[str, list[Goal]], original_stores: dict[str, Store]) -> None:
    counts = {}
    for kind, found in ordered_goals.items():
        store = original_stores[kind]
        products = [store.product(store.position(goal["asin"]) or 0) for goal in found]
        scores = [oracle.ceiling(product, goal, 0.0).score for product, goal in zip(products, found, strict=True)]
        counts[kind] = sum(score < 1 for score in scores)
    # thirteen hide a color; one asks for a style that is named like a button, so that no click can choose it
    assert counts == {"synthetic": 13 + 1, "human": 4}


def test_options_that_cannot_be_chosen() -> None:
    options = {"show": ["features", "a[b", "line\nbreak", "search", "", "plain"], "other": ["plain"]}
    assert oracle.choosable(_product(options=options)) == {"other": ["plain"]}
    assert oracle.best_options(_product(options=options), _goal(goal_options=["features"])) == {}


def test_best_options_meet_most() -> None:
    product = _product(options={"color": ["oak", "pine"], "size": ["x-large", "pine small"]})
    chosen = oracle.best_options(product, _goal(goal_options=["oak", "large"]))
    assert chosen == {"color": "oak", "size": "x-large"}
    assert oracle.best_options(product, _goal(goal_options=["pine", "small"])) == {"size": "pine small"}  # one click


def test_audit(fixed: WebShop) -> None:
    audit = fixed.audit("test")
    tasks = {task.id: task for task in fixed.task_set("test").tasks}
    assert audit["goals"] == len(tasks)
    assert audit["ceiling_success"] == pytest.approx(100 * (1 - len(audit["unreachable"]) / len(tasks)))
    assert all(fixed.ceiling(tasks[name]).score < 1 for name in audit["unreachable"])
    assert audit["ceiling_score"] == pytest.approx(100 * np.mean([fixed.ceiling(t).score for t in tasks.values()]))
