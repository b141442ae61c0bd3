"""WebShop as the trainer sees it: observations, rewards, counts, prompts, replies, scripted policies, runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from benchmarks.base import Benchmark, EnvironmentPool, StepView, Task
from benchmarks.webshop import WebShop, make, menu, oracle, pages, protocol, shop
from benchmarks.webshop.build import build
from benchmarks.webshop.episode import Episode
from benchmarks.webshop.session import ITEM, RESULTS, State
from sweeps.cli import main
from sweeps.config import compose


@pytest.fixture(scope="module")
def official() -> WebShop:
    return make()


@pytest.fixture(scope="module")
def short() -> WebShop:
    return make(commands="short")


def _bought(benchmark: WebShop, task: Task) -> tuple[Episode, list[Any]]:
    """The oracle buyer's episode and its step results."""
    episode = benchmark.episode(task)
    act, results = oracle.buyer(episode.session), []
    while not results or not results[-1].done:
        results.append(episode.step(act()))
    return episode, results


# --- the benchmark ----------------------------------------------------------------------------------------------------


def test_registered() -> None:
    assert "webshop" in benchmarks.names()
    found = benchmarks.load("webshop", success_reward=10.0, data="made")
    assert isinstance(found, Benchmark)
    assert found.label == "webshop-made-1000-human-fixed"
    record = found.record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["splits"] == {"train": 626, "eval": 138, "test": 69}
    assert record["tagger"] == "rules-1"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"goal": "fixed"}, "unknown webshop option 'goal'; did you mean 'goals'"),
        ({"goals": "offical"}, "did you mean 'official'"),
        ({"reward": "both"}, "known: success, score"),
        ({"history": -1}, "needs 0 or more"),
        ({"success_reward": 0}, "a number above 0"),
        ({"goal_kind": "humans"}, "did you mean 'human'"),
    ],
)
def test_options(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make(**options)


def test_a_catalogue_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder"):
        make(data=str(tmp_path / "none")).task_set("train")


# --- episodes ---------------------------------------------------------------------------------------------------------


def test_the_buyer_reaches_the_ceiling_and_nothing_gains_nothing(official: WebShop) -> None:
    for task in official.task_set("test").tasks:
        episode, results = _bought(official, task)
        ceiling = official.ceiling(task).score
        assert episode.score == ceiling
        assert results[-1].success == (ceiling == 1.0)
        assert results[-1].reward == (10.0 if ceiling == 1.0 else 0.0)
        assert len(results) <= oracle.HORIZON
        idle = official.episode(task)
        assert oracle.play(idle, lambda: oracle.IDLE) == (0.0, oracle.HORIZON)


def test_score_reward() -> None:
    benchmark = make(reward="score")
    assert benchmark.success_reward == 1.0
    unreachable = benchmark.audit("test")["unreachable"]
    for task in benchmark.task_set("test", 8).tasks:
        episode, results = _bought(benchmark, task)
        assert [r.reward for r in results] == [0.0] * (len(results) - 1) + [episode.score]
        assert (episode.score < 1.0) == (task.id in unreachable)


def test_counts_are_apart(official: WebShop) -> None:
    episode = official.episode(official.task_set("train", 1).tasks[0])
    assert episode.step("fly[moon]").admissible is False
    assert episode.step("click[nothing]").admissible is False
    assert episode.measures()["noops"] == 0
    assert episode.step("click[search]").admissible is True
    assert episode.measures()["noops"] == 1
    assert episode.step("search[chair]").admissible is True
    assert episode.step("search[chair]").measures == {"task_score": 0.0, "purchases": 0, "searches": 2, "noops": 2}
    assert episode.step("search[sofa]").measures["noops"] == 2


def test_the_option_chosen_again_is_a_noop(official: WebShop) -> None:
    task = next(t for t in official.task_set("train").tasks if official.ceiling(t).options)
    episode = official.episode(task)
    act = oracle.buyer(episode.session)
    while not episode.session.state.options:
        action = act()
        episode.step(action)
    before = episode.measures()["noops"]
    episode.step(action)
    assert episode.measures()["noops"] == before + 1


def test_what_the_page_lists_is_admissible_even_where_it_does_nothing(
    tmp_path: Path, rows: Callable[..., Any], files: Callable[..., Any]
) -> None:
    values = [{"value": value} for value in ("a [b]", "", "c")]
    build(files(rows(5, customization_options={"size": values})), tmp_path / "store")
    benchmark = make(data=str(tmp_path / "store"), goal_kind="synthetic")
    episode = benchmark.episode(benchmark.task_set("train", 1).tasks[0])
    episode.step("search[chair]")
    episode.step("click[p0000]")
    for noops, action in enumerate(("click[a [b]]", "click[]"), start=1):
        assert action in episode.observation().admissible
        result = episode.step(action)
        assert result.admissible
        assert result.measures["noops"] == noops
    assert episode.step("click[a]").admissible is False


def test_no_step_after_the_purchase(official: WebShop) -> None:
    task = official.task_set("train", 1).tasks[0]
    episode, results = _bought(official, task)
    assert results[-1].measures["purchases"] == 1
    with pytest.raises(RuntimeError, match=f"{task.id} is over"):
        episode.step("search[chair]")


def test_state_keys(official: WebShop) -> None:
    task = next(t for t in official.task_set("train").tasks if official.ceiling(t).options)
    episode = official.episode(task)
    first = episode.observation()
    assert first.keys["observation"] == first.text == "'Search'"
    assert task.payload["instruction_text"] not in first.keys["full"]
    act, seen = oracle.buyer(episode.session), []
    while episode.session.state.page != "done":
        seen.append(episode.observation().keys)
        episode.step(act())
    full, shown = [keys["full"] for keys in seen], [keys["observation"] for keys in seen]
    assert len(set(full)) == len(full)  # the choice of an option is a state of its own
    assert len(set(shown)) < len(shown)  # the published anchor does not show it


def test_equal_hits_of_other_queries_are_one_full_state(official: WebShop) -> None:
    keys = []
    for query in ("chair chair", "chair"):
        episode = official.episode(official.task_set("train", 1).tasks[0])
        keys.append(episode.step(f"search[{query}]").observation.keys["full"])
    assert keys[0] == keys[1]


def test_text_rich_and_attributes() -> None:
    benchmark = make(observation="text_rich", show_attributes=True)
    task = benchmark.task_set("train", 1).tasks[0]
    episode = benchmark.episode(task)
    episode.step(f"search[{task.payload['name']}]")
    result = episode.step(f"click[{task.payload['asin'].lower()}]")
    assert "[button] Attributes [button_]" in result.observation.text
    result = episode.step("click[attributes]")
    assert result.observation.text.endswith(f"\n{task.payload['product_category']}\n")
    result = episode.step("click[< prev]")
    assert episode.session.state.page == ITEM


# --- navigation that no recorded session shows ------------------------------------------------------------------------


def test_words_of_the_query_mislead_the_way_back(official: WebShop) -> None:
    task = official.task_set("train", 1).tasks[0]
    for query, page in (("chair", ITEM), ("chair item_page", RESULTS), ("chair search_results", RESULTS)):
        session = official.episode(task).session
        session.step(f"search[{query}]")
        session.step(f"click[{list(session.page.clickables)[2]}]")
        session.step("click[description]")
        session.step("click[< prev]")
        assert session.state.page == page
    assert session.state.number == 0  # from the page before the first, as in the original
    assert "Page 0 (Total results: " in session.text()


def test_options_are_kept_on_sub_pages_and_lost_on_results(official: WebShop) -> None:
    task = next(t for t in official.task_set("train").tasks if official.ceiling(t).options)
    session = official.episode(task).session
    act = oracle.buyer(session)
    while not session.state.options:
        session.step(act())
    chosen = dict(session.state.options)
    session.step("click[features]")
    session.step("click[< prev]")
    assert session.state.options == chosen
    session.step("click[< prev]")
    assert session.state.options == {}
    session.step("click[back to search]")
    assert session.state == State()


def test_done_page_escapes_markup() -> None:
    page = pages.done("P1", {"size": "<b>'&'", "color": "rosé"}, 0.5)
    assert '{"color": "ros\\u00e9", "size": "\\u003cb\\u003e\\u0027\\u0026\\u0027"}' in pages.plain_text(page)


def test_blank_nodes() -> None:
    page = pages.Page(pages._kept([("text", " \n "), ("text", "   "), ("text", ""), ("text", " a ")]), {})
    assert page.nodes == (("text", " "), ("text", " a "))
    assert pages.plain_text(page) == " [SEP] a"


# --- chat prompts and replies -----------------------------------------------------------------------------------------


def test_shown() -> None:
    text = "Instruction: [SEP] buy it [SEP] Back to Search [SEP] Page 1"
    assert protocol.shown(text, "buy it") == "'Back to Search' [SEP] 'Page 1'"
    assert protocol.shown("Thank you [SEP] None", "buy it") == "Thank you [SEP] None"
    assert protocol.shown(pages.plain_text(pages.start(" buy it ")), " buy it ") == "'Search'"


def test_prompt(official: WebShop) -> None:
    episode = official.episode(official.task_set("train", 1).tasks[0])
    observation = episode.observation()
    first = official.messages(StepView(observation, 0, 15))[0]["content"]
    assert "'search[<your query>]'," in first
    assert "'click[search]'," in first
    assert observation.goal in first
    later = episode.step("search[chair]").observation
    past = ((observation.text, "search[chair]"),)
    second = official.messages(StepView(later, 1, 15, past))[0]["content"]
    assert "[Observation 1: ''Search'', Action 1: 'search[chair]']" in second
    assert "'click[back to search]'," in second
    assert "search[<your query>]" not in second
    long = official.messages(StepView(later, 1, 15, (("x" * 14_000, "search[chair]"),)))[0]["content"]
    assert "Action 1" not in long
    without = make(offer_click_search=False)
    assert "click[search]" not in without.messages(StepView(observation, 0, 15))[0]["content"]


@pytest.mark.parametrize(
    ("reply", "action", "valid"),
    [
        ("<think>a</think><action> Search[Lip] </action>", "search[lip]", True),
        ("<action>click[x]</action>", "click[x]", False),
        ("<think>好</think><action>click[x]</action>", "click[x]", False),
        ("no tags but rather long text", "but rather long text", False),
        ("", "", False),
        ("<think></think><action>a</action><action>b</action>", "a", True),
    ],
)
def test_replies(reply: str, action: str, valid: bool) -> None:
    parsed = protocol.parse(reply)
    assert (parsed.action, parsed.format_valid) == (action, valid)


# --- the tiny policy's commands ---------------------------------------------------------------------------------------


def test_queries_are_made_of_the_task(short: WebShop) -> None:
    task = "i need a oak chair that is sturdy and light, color tan and size small, and price lower than 40.00 dollars"
    assert menu.queries(task) == (
        "i need a oak chair that is sturdy and light color tan and size small",
        "oak chair sturdy light color tan size small", "oak chair sturdy light", "chair sturdy light",
        "oak chair sturdy", "color tan size small",
    )  # fmt: skip
    assert menu.price_limit(task) == 40.0
    assert all(menu.queries(text) for text in ("", ".", ",", "the"))


def test_short_commands_stand_for_actions(short: WebShop, official: WebShop) -> None:
    task = short.task_set("train", 3).tasks[2]
    one, other = short.episode(task), official.episode(task)
    for _ in range(12):
        observation = one.observation()
        command = oracle.shopper(observation)
        assert command in observation.admissible
        action = menu.commands(other.session.page, other.session.instruction)[command]
        first, second = one.step(command), other.step(action)
        assert first.observation.text == second.observation.text
        assert (first.reward, first.done) == (second.reward, second.done)
        if first.done:
            break
    assert first.done


def test_short_commands_mean_nothing_otherwise(official: WebShop) -> None:
    episode = official.episode(official.task_set("train", 1).tasks[0])
    assert episode.step("search 1").admissible is False


def test_prompts_and_commands_stay_inside_the_lexicon(short: WebShop) -> None:
    known, seen = set(short.lexicon()), 0
    for view, command in short.demonstrations(short.task_set("train", 40).tasks, 2, seed=0):
        assert command in view.observation.admissible
        texts = [short.compact(view), *view.observation.admissible]
        assert {word for text in texts for word in short.words(text)} <= known
        assert " ".join(short.words(command)) == command
        seen += 1
    assert seen > 200


def test_demonstrations_repeat(short: WebShop) -> None:
    tasks = short.task_set("train", 3).tasks
    one, two = (list(short.demonstrations(tasks, 2, seed=4)) for _ in range(2))
    assert one == two
    assert list(short.demonstrations(tasks, 2, seed=5)) != one


def test_a_reading_shopper_does_well(short: WebShop) -> None:
    wins = 0
    for task in short.task_set("eval", 60).tasks:
        episode = short.episode(task)
        observation = episode.observation()
        for _ in range(oracle.HORIZON):
            result = episode.step(oracle.shopper(observation))
            observation = result.observation
            if result.done:
                break
        wins += result.success
    assert wins >= 40


def test_the_tiny_policy_needs_short_commands(official: WebShop) -> None:
    with pytest.raises(ValueError, match="commands=short"):
        official.lexicon()
    episode = official.episode(official.task_set("train", 1).tasks[0])
    with pytest.raises(ValueError, match="commands=short"):
        official.compact(StepView(episode.observation(), 0, 15))


# --- pools and threads ------------------------------------------------------------------------------------------------


def test_pool(official: WebShop) -> None:
    tasks = official.task_set("train", 3).tasks
    pool: EnvironmentPool = official.pool(4, workers=2)
    assert len(pool.reset(tasks)) == 3
    results = pool.step([(2, "search[chair]"), (0, "click[search]")])
    assert [result.observation.text == "'Search'" for result in results] == [False, True]
    with pytest.raises(ValueError, match="slot 3 has no episode"):
        pool.step([(3, "x")])
    with pytest.raises(ValueError, match="once"):
        pool.step([(1, "x"), (1, "y")])
    with pytest.raises(ValueError, match="do not fit"):
        pool.reset(tasks * 2)
    with pytest.raises(ValueError, match="1 slot or more"):
        official.pool(0)
    pool.close()
    with pytest.raises(ValueError, match="no episode"):
        pool.step([(0, "x")])


def test_tasks_of_another_catalogue(official: WebShop) -> None:
    task = official.task_set("train", 1).tasks[0]
    for payload in ({}, {**task.payload, "asin": "NOWHERE"}):
        with pytest.raises(ValueError, match="make the task set again"):
            official.episode(Task(task.id, "", payload))


def test_threads_share_a_catalogue(official: WebShop) -> None:
    tasks = official.task_set("train", 40).tasks
    expected = [_bought(official, task)[0].score for task in tasks]
    found: dict[int, float] = {}

    def work(start: int) -> None:
        for number in range(start, len(tasks), 4):
            found[number] = _bought(official, tasks[number])[0].score

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(len(tasks))] == expected


# --- search engines ---------------------------------------------------------------------------------------------------


def test_other_engines(official: WebShop) -> None:
    with pytest.raises(ValueError, match="no Lucene index"):
        shop.engine("pyserini", official.store, "/nowhere")
    pytest.importorskip("bm25s", reason="needs the extra [webshop-bm25s]")
    exact, near = (shop.engine(name, official.store) for name in ("lucene", "bm25s"))
    assert near("zzzz") == []
    overlap = [len(set(exact(q)[:10]) & set(near(q)[:10])) for q in ("sturdy oak chair", "gluten free granola bar")]
    assert min(overlap) >= 7
    assert make(search="bm25s").label == "webshop-made-1000-human-fixed-bm25s"


# --- configuration and runs -------------------------------------------------------------------------------------------


def test_configurations() -> None:
    tiny = compose(["benchmark=webshop"])
    assert tiny["benchmark"]["options"]["commands"] == "short"
    assert tiny["protocol"]["state_key"] == "full"
    assert tiny["protocol"]["evaluation"]["lists"]["unseen_games"]["split"] == "eval"
    paper = compose(["benchmark=webshop", "protocol=paper_webshop", "model=qwen2.5_1.5b"])
    assert paper["benchmark"]["options"]["commands"] == "official"
    assert paper["protocol"]["horizon"] == 15
    benchmarks.load("webshop", **paper["benchmark"]["options"]).task_set("test")


def test_a_run_reports_score_and_counts(tmp_path: Path) -> None:
    overrides = [
        "benchmark=webshop", "algorithm=gigpo", "protocol.updates=1", "protocol.tasks_per_update=2",
        "protocol.group_size=2", "model.warm_start.steps=2", "model.warm_start.tasks=4",
        "protocol.evaluation.lists={unseen_games: {split: eval, offset: 0, count: 3, repeats: 1}}",
    ]  # fmt: skip
    assert main(["train", "--out", str(tmp_path), *overrides]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    result = json.loads((run / "result.json").read_text())
    assert result["data"]["label"] == "webshop-made-1000-human-fixed"
    (row,) = [json.loads(line) for line in (run / "attempts/0001/metrics.jsonl").read_text().splitlines()]
    assert {"measure/task_score", "measure/purchases", "measure/noops"} <= row.keys()
    text = "".join(path.read_text() for path in (run / "evaluations").rglob("*") if path.is_file())
    assert '"task_score"' in text
