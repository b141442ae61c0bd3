"""Prompting baselines: what ReAct shows, what it drops when there is no room, where its examples come from."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

import benchmarks
from algorithms import baselines, estimators
from algorithms.policy import ChatPolicy, PolicyError, load_policy
from algorithms.prompting import Example, PromptingError, ReAct, ReActOptions, history_shown, worked_examples
from benchmarks.base import Observation, StepView
from sweeps import quickstart
from sweeps.cli import main
from sweeps.config import ConfigError, compose
from sweeps.store import RunFolder

_SPEC = importlib.util.spec_from_file_location("make_model", Path(__file__).parents[1] / "gpu" / "make_model.py")
make_model = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(make_model)

LISTS = ("protocol.evaluation.lists.training_games.count=2", "protocol.evaluation.lists.unseen_games.count=3")
EXAMPLES = (Example("a", "Task: one\nObservation: first example\n<action>go</action>"), Example("b", "Task: two"))


@pytest.fixture(scope="module")
def alfworld():
    return benchmarks.load("alfworld", data="synth-small", history=50)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model.make(tmp_path_factory.mktemp("model"), "small", benchmarks.load("worlds"))


def view_of(steps: int, words: int = 3) -> StepView:
    """A decision after `steps` steps, each with a thought of its own."""
    history = tuple(
        (f"seen {i} {'more ' * words}", f"<think>thought {i}</think> <action>do {i}</action>") for i in range(steps)
    )
    seen = Observation(text="the newest sight", goal="fetch the lamp", admissible=("look", "wait"))
    return StepView(seen, steps, 50, history)


def text_of(messages: list[dict[str, str]]) -> str:
    return "\n".join(message["content"] for message in messages)


# --- what is shown


def test_react_shows_examples_then_the_whole_past_with_its_thoughts(alfworld):
    text = text_of(ReAct(alfworld, EXAMPLES).messages(view_of(4)))
    places = [text.index(part) for part in ("first example", "Task: two", "fetch the lamp", "the newest sight")]
    assert places == sorted(places)
    for i in range(4):
        assert f"thought {i}" in text
        assert f"do {i}" in text


def test_without_examples_a_first_prompt_is_the_benchmarks_own(alfworld):
    assert ReAct(alfworld).messages(view_of(0)) == alfworld.messages(view_of(0))


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("<think>why</think> <action>look</action>", "<think>why</think> <action>look</action>"),
        ("<think>why</think><action>look</action> Observation: I dream on", "<think>why</think><action>look</action>"),
        ("  no tags at all \n", "no tags at all"),
        ("", ""),
    ],
)
def test_later_prompts_show_the_reply_up_to_its_action(alfworld, reply, shown):
    parsed, plain = ReAct(alfworld).parse(reply), alfworld.parse(reply)
    assert parsed.shown == shown
    assert (parsed.action, parsed.format_valid, parsed.sent) == (plain.action, plain.format_valid, plain.sent)


def test_a_protocol_that_shows_whole_replies_keeps_its_own_record():
    search = benchmarks.load("search_qa", profile="search_r1")
    reply = "<think>t</think> <search>q</search> and more"
    assert ReAct(search).parse(reply).shown == search.parse(reply).shown == "<think>t</think> <search>q</search>"


def test_trained_methods_do_not_see_thoughts(alfworld):
    assert alfworld.parse("<think>why</think> <action>look</action>").shown == "look"


@pytest.mark.parametrize("name", ["alfworld", "search_qa", "webshop"])
def test_everything_but_prompts_is_the_benchmarks(name):
    inner = benchmarks.load(name)
    outer = ReAct(inner, EXAMPLES)
    for attribute in ("name", "label", "kinds", "success_reward"):
        assert getattr(outer, attribute) == getattr(inner, attribute)
    assert outer.task_set("train", 2).hash == inner.task_set("train", 2).hash
    assert outer.record() == {**inner.record(), "worked_examples": ["a", "b"]}


def test_a_past_that_webshop_finds_too_long_loses_its_oldest_steps_only():
    shop = benchmarks.load("webshop", history=15)
    (task,) = shop.task_set("train", 1).tasks
    (start,) = shop.pool(1).reset([task])
    history = tuple((f"page {i} " + "word " * 700, f"<think>t{i}</think>") for i in range(6))  # 3,500 characters each
    view = StepView(start, 6, 15, history)
    assert "t5" not in text_of(shop.messages(view))  # its own rule: all or nothing
    text = text_of(ReAct(shop).messages(view))
    assert [i for i in range(6) if f"t{i}<" in text] == [3, 4, 5]


# --- what is dropped


@pytest.fixture(scope="module")
def policy(model):
    config = compose(["model=hub", f"model.path={model}", "model.dtype=float32"])["model"]
    return load_policy(config, Readable(), folder=model)


def chat(policy: ChatPolicy, benchmark, limit: int) -> ChatPolicy:
    policy.benchmark, policy.max_prompt_tokens = benchmark, limit
    return policy


class Readable:
    """Prompts whose words are their parts: one token each, so that lengths can be counted by hand."""

    name, cuts_left = "readable", False

    def messages(self, view: StepView) -> list[dict[str, str]]:
        past = " ".join(f"{seen} {done}" for seen, done in view.history)
        return [{"role": "user", "content": f"{view.observation.goal} {past} {view.observation.text}"}]


def stepping(steps: int) -> StepView:
    return StepView(Observation("now", "goal"), steps, 50, tuple((f"o{i}", f"a{i}") for i in range(steps)))


def parts(policy: ChatPolicy, length: int, steps: int) -> tuple[int, int]:
    """(examples, past steps) of a prompt of this length; their lengths differ, and examples go last."""
    view = stepping(steps)
    for examples in range(len(EXAMPLES), -1, -1):
        for shown in range(steps, -1, -1):
            some = ReAct(Readable(), EXAMPLES[:examples]).messages(replace(view, history=view.history[steps - shown :]))
            if len(policy._ids(some)) == length:
                return examples, shown
    raise AssertionError(f"no prompt has {length} tokens")


def test_the_past_goes_first_then_examples_and_never_the_task(policy):
    benchmark, steps = ReAct(Readable(), EXAMPLES), 5
    whole, bare = (len(policy._ids(one.messages(stepping(steps)))) for one in (benchmark, ReAct(Readable())))
    least = bare - 2 * steps
    with pytest.raises(PolicyError, match=r"protocol\.max_prompt_tokens"):
        chat(policy, benchmark, least - 1).render(stepping(steps))
    seen = []
    for limit in range(least, whole + 2):
        ids = chat(policy, benchmark, limit).render(stepping(steps))
        assert len(ids) <= limit
        seen.append(parts(policy, len(ids), steps))
    assert seen[0] == (0, 0)
    assert seen[-1] == (2, steps)
    assert {examples for examples, _ in seen} == {0, 1, 2}
    assert seen == sorted(seen)  # room goes to examples first, then to the past
    assert all(min(past for found, past in seen if found == examples) == 0 for examples in range(3))


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("limit", [8, 11, 14, 17, 40])
def test_the_longest_past_that_fits_is_shown(policy, steps, limit):
    view = stepping(steps)
    one_by_one = [policy._ids(Readable().messages(replace(view, history=view.history[k:]))) for k in range(steps + 1)]
    longest = next(ids for ids in one_by_one if len(ids) <= limit)
    assert chat(policy, Readable(), limit).render(view) == longest


# --- worked examples


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("alfworld", {"data": "synth-small"}),
        ("webshop", {}),
        ("search_qa", {}),
        ("search_qa", {"profile": "search_r1"}),
        ("search_qa", {"profile": "verl_agent"}),
        ("search_qa", {"data": "search-worlds"}),
        ("worlds", {}),
    ],
)
def test_an_experts_replies_are_valid_in_the_benchmarks_own_format(name, options):
    benchmark = benchmarks.load(name, **options)
    count = 0
    for view, action in benchmark.demonstrations(benchmark.task_set("train", 6).tasks, 1, 0):
        parsed = benchmark.parse(benchmark.reply(view, action))
        assert parsed.format_valid
        assert parsed.action.replace(" ", "") == action.replace(" ", "")
        count += 1
    assert count > 6


def protocol(split: str, *lists: tuple[str, int, int]) -> dict:
    slices = {str(i): {"split": s, "offset": o, "count": c} for i, (s, o, c) in enumerate(lists)}
    return {"train": {"split": split}, "evaluation": {"lists": slices}}


def test_examples_are_the_shortest_solved_demonstrations_of_no_evaluation_task():
    search = benchmarks.load("search_qa")
    free = worked_examples(search, 2, protocol("train", ("eval", 0, 1)))
    held = worked_examples(search, 2, protocol("train", ("eval", 0, 1), ("train", 0, 30)))
    in_evaluation = {task.id for task in search.task_set("train", 30).tasks}
    assert {example.task for example in free} <= in_evaluation
    assert not {example.task for example in held} & in_evaluation
    for example in (*free, *held):
        assert "<answer>" in example.text
    assert len(free[0].text) <= len(free[1].text)
    assert free == worked_examples(benchmarks.load("search_qa"), 2, protocol("train", ("eval", 0, 1)))


def test_a_webshop_example_buys_what_was_asked_for():
    shop = benchmarks.load("webshop")
    (example,) = worked_examples(shop, 1, protocol("train", ("test", 0, 5)))
    assert "<action>search[" in example.text
    assert example.text.endswith("<action>click[buy now]</action>")


def test_too_few_examples_and_benchmarks_without_words_say_so(alfworld):
    with pytest.raises(PromptingError, match="only 0 of the first"):
        worked_examples(benchmarks.load("worlds", kinds="sokoban"), 50, protocol("train", ("train", 0, 96)))
    with pytest.raises(PromptingError, match=r"algorithm\.options\.examples=0"):
        worked_examples(Readable(), 1, protocol("train", ("train", 0, 1)))
    with pytest.raises(PromptingError, match=r"split 'trian'.*examples=0"):
        worked_examples(alfworld, 1, protocol("trian", ("valid_seen", 0, 1)))


# --- configuration and command line


def test_baselines_share_everything_else_with_trained_methods():
    shared = [
        {key: value for key, value in compose([f"algorithm={name}", "model=smollm2"]).items() if key != "algorithm"}
        for name in ("graft", "initial", *baselines.METHODS)
    ]
    assert all(entry == shared[0] for entry in shared)


def test_baselines_estimate_nothing():
    assert not set(baselines.METHODS) & set(estimators())
    assert compose(["algorithm=react", "model=smollm2"])["algorithm"] == {
        "name": "react", "objective": None, "options": vars(ReActOptions()),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm=react"], "algorithm=react prompts a chat model, and model=tiny is none"),
        (["algorithm=prompting"], "use model=smollm2"),
        (["algorithm=react", "model=smollm2", "algorithm.options.exampels=2"], "did you mean 'examples'"),
        (["algorithm=react", "model=smollm2", "algorithm.options.examples=-1"], "examples must be a whole number >= 0"),
        (["algorithm=react", "model=smollm2", "algorithm.options.examples=true"], "examples must be a whole number"),
        (["algorithm=react", "model=smollm2", "algorithm.options.history=x"], "history must be a whole number >= 0"),
        (["algorithm=prompting", "model=smollm2", "algorithm.options.examples=1"], "unknown key"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(overrides, message):
    with pytest.raises(ConfigError) as caught:
        compose(overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "shown"), [([], 15), (["algorithm.options.history=0"], 0), (["algorithm.options.history=3"], 3)]
)
def test_react_shows_the_whole_episode_unless_told_otherwise(overrides, shown):
    assert history_shown(compose(["algorithm=react", "model=smollm2", *overrides])) == shown
    assert history_shown(compose(["algorithm=graft", "model=smollm2"])) == 2


def overrides(model: Path, *more: str) -> list[str]:
    return [
        "model=hub", f"model.path={model}", "model.dtype=float32", "benchmark=worlds", "protocol.state_key=observation",
        "protocol.horizon=3", "protocol.max_response_tokens=3", *LISTS, *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def evaluated(model, tmp_path_factory):
    """Both baselines, one through `evaluate` and one through `train`, and their run folders."""
    out = tmp_path_factory.mktemp("out")
    assert main(["evaluate", "algorithm=prompting", *overrides(model), "--out", str(out)]) == 0
    assert main(["train", "algorithm=react", *overrides(model), "--out", str(out)]) == 0
    runs = [RunFolder.open(folder) for folder in sorted((out / "runs").iterdir())]
    return out, {run.config()["algorithm"]["name"]: run for run in runs}


def test_a_baseline_is_a_run_whose_evaluation_counts_as_its_result(evaluated):
    _, runs = evaluated
    assert set(runs) == set(baselines.METHODS)
    for name, run in runs.items():
        assert run.state() == "done"
        assert set(run.evaluations()) == {"training_games/after", "unseen_games/after"}
        assert not run.metrics()
        data = json.loads((run.path / "result.json").read_text())["data"]
        assert len(data.get("worked_examples", [])) == (1 if name == "react" else 0)


def test_a_finished_baseline_is_not_played_again(evaluated, model, capsys):
    out, runs = evaluated
    assert main(["evaluate", "algorithm=react", *overrides(model), "--out", str(out)]) == 0
    assert f"done already: {runs['react'].path}" in capsys.readouterr().out


def test_evaluating_its_folder_again_gives_the_same_episodes(evaluated):
    _, runs = evaluated
    before = runs["react"].evaluations()["unseen_games/after"][1]
    assert main(["evaluate", str(runs["react"].path), "--list", "unseen_games"]) == 0
    assert runs["react"].evaluations()["unseen_games/after"][1] == before


def test_a_table_has_them_by_their_algorithm(evaluated, tmp_path, capsys):
    out, _ = evaluated
    (tmp_path / "mine.yaml").write_text(
        "title: t\nseeds: [1]\nlists: {worlds: unseen_games}\n"
        "rows: [{label: Prompting, where: {algorithm: prompting}}, {label: ReAct, where: {algorithm: react, "
        "algorithm.options.history: null}}]\n"
        "columns: [{header: Success, benchmark: worlds, metric: success}]\n"
    )
    assert main(["table", str(tmp_path / "mine.yaml"), "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "ReAct" in text
    assert "Missing" not in text


def test_the_quick_start_plans_them_without_updates(model, capsys):
    command = ["quickstart", "--dry-run", "--seeds", "1", "--methods", "prompting,react,graft", *overrides(model)]
    assert main(command) == 0
    assert "3 methods x 1 seed" in capsys.readouterr().out
    plan = quickstart.make_plan(Path("x"), ["prompting", "react", "graft"], 1, overrides(model))
    assert {cell.method: cell.updates for cell in plan.cells} == {"initial": 0, "prompting": 0, "react": 0, "graft": 24}
    assert "= 1536 episodes of at most 3 steps a cell, 1536 in all" in quickstart.describe(plan, 1)
