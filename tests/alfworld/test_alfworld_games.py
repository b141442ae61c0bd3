"""Generated games, task sets, options, scripted policies and the texts made for agents."""

from __future__ import annotations

import json
import random
import re
from itertools import islice

import pytest

import benchmarks
from benchmarks.alfworld import make, oracle, reading, rooms, synth
from benchmarks.alfworld.options import SPLITS
from benchmarks.base import Benchmark, Observation, StepView


def games(label: str, split: str, count: int):
    return [synth.make_game(label, split, index) for index in range(count)]


@pytest.mark.parametrize("label", list(synth.LABELS))
def test_no_game_is_in_two_splits(label):
    made = [game for split in SPLITS for game in games(label, split, 144)]
    assert len({game.digest for game in made}) == len(made)
    assert len({game.id for game in made}) == len(made)


def scenes(label: str, split: str) -> dict[int, set[tuple[str, ...]]]:
    """Scene -> the receptacles it was seen with."""
    found: dict[int, set[tuple[str, ...]]] = {}
    for game in games(label, split, 144):
        receptacles = tuple(re.findall(r"\(receptacleAtLocation ([^?\s]\S*)", game.problem))
        found.setdefault(int(game.id.rpartition("-")[2]), set()).add(receptacles)
    return found


def test_seen_scenes_are_those_of_train_and_unseen_are_others():
    train, seen, unseen = (scenes("alfworld-synth-v1", split) for split in SPLITS)
    assert {scene % 100 for scene in (*train, *seen)} <= set(range(7, 31))
    assert {scene % 100 for scene in unseen} <= set(range(1, 7))
    assert all(len(layouts) == 1 for layouts in (*train.values(), *seen.values(), *unseen.values()))
    assert all(train[scene] == seen[scene] for scene in train.keys() & seen.keys())


def test_manifests_are_pinned(small, stock_size):
    """A change here makes earlier results incomparable: give the data a new label."""
    assert small.task_set("train", 12).hash == "37d7be9e16644aae"
    assert stock_size.task_set("valid_unseen", 12).hash == "597281586152eb5f"


def test_task_sets(small):
    tasks = small.task_set("train", 12)
    assert [task.kind for task in tasks.tasks] == list(small.kinds) * 2
    assert [task.id for task in tasks.tasks] == sorted(task.id for task in tasks.tasks)
    assert small.task_set("train", 4, offset=8).tasks == tasks.tasks[8:]
    assert len(small.task_set("valid_seen")) == small.size("valid_seen") == 144
    assert json.loads(json.dumps(tasks.tasks[3].payload)) == {
        "label": small.label,
        "split": "train",
        "index": 3,
    }
    with pytest.raises(ValueError, match="unknown ALFWorld split 'test'"):
        small.task_set("test")
    with pytest.raises(ValueError, match=r"has 144 tasks: 10 after offset 140"):
        small.task_set("valid_seen", 10, offset=140)


def test_options():
    assert isinstance(benchmarks.load("alfworld", data="synth-small"), Benchmark)
    with pytest.raises(ValueError, match=r"unknown alfworld option 'succes_reward'; did you mean 'success_reward'"):
        make(succes_reward=1.0)
    with pytest.raises(ValueError, match=r"data='synth-smal'; did you mean 'synth-small'"):
        make(data="synth-smal")
    with pytest.raises(ValueError, match="engines=0: needs 1 or more"):
        make(engines=0)
    with pytest.raises(ValueError, match="success_reward=0"):
        make(success_reward=0)


def test_record(small):
    record = small.record()
    assert record["put_command"] == "move {o} to {r}"
    assert record["versions"] == {"alfworld": "0.4.2", "textworld": "1.7.0"}
    json.dumps(record, allow_nan=False)


@pytest.mark.parametrize("split", ["train", "valid_unseen"])
def test_planner_and_searcher_win_and_idleness_does_not(small, split):
    for task in small.task_set(split, 18).tasks:
        episode = small._player.episode(task)
        assert oracle.play(episode, oracle.planner_policy(episode))[0], task.id
        assert oracle.play(small._player.episode(task), oracle.search_policy)[0], task.id
        assert not oracle.play(small._player.episode(task), oracle.noop_policy)[0], task.id


def test_planner_and_searcher_win_rooms_of_stock_size(stock_size):
    for task in stock_size.task_set("valid_unseen", 6).tasks:
        episode = stock_size._player.episode(task)
        assert oracle.play(episode, oracle.planner_policy(episode))[0], task.id
        assert oracle.play(stock_size._player.episode(task), oracle.search_policy)[0], task.id


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_every_generated_evaluation_game_can_be_won(stock_size, small, split):
    for benchmark in (stock_size, small):
        for task in benchmark.task_set(split, 144).tasks:
            episode = benchmark._player.episode(task)
            assert oracle.play(episode, oracle.planner_policy(episode))[0], task.id
            assert oracle.play(benchmark._player.episode(task), oracle.search_policy)[0], task.id


def test_demonstrations_are_deterministic_and_win(small):
    tasks = small.task_set("train", 6).tasks
    first = list(small.demonstrations(tasks, runs=2, seed=3))
    assert first == list(small.demonstrations(tasks, runs=2, seed=3))
    assert first != list(small.demonstrations(tasks, runs=2, seed=4))
    assert all(action in view.observation.admissible for view, action in first)
    assert all(len(view.history) == view.step for view, _ in first)
    assert {view.observation.goal for view, _ in first} == {
        small._player.episode(task).observation().goal for task in tasks
    }
    assert list(islice(small.demonstrations(tasks, 1, 0, expert="planner"), 3))
    with pytest.raises(ValueError, match="unknown expert 'planer'"):
        list(small.demonstrations(tasks, 1, 0, expert="planer"))


def test_wasted_demonstrations_look_around_as_often_as_asked_and_do_the_rest_well():
    dawdler = make(data="synth-small", wasted=0.4)
    shown = list(dawdler.demonstrations(dawdler.task_set("train", 24).tasks, runs=2, seed=3))
    idle = [action for _, action in shown if action.startswith(("look", "inventory", "examine "))]
    assert len(idle) / len(shown) == pytest.approx(0.4, abs=0.06)
    assert {action.split()[0] for action in idle} == {"look", "inventory", "examine"}
    rest = [(view, action) for view, action in shown if action not in idle]
    assert all(action == oracle.search_policy(view.observation) for view, action in rest)
    with pytest.raises(ValueError, match=r"wasted=1\.5"):
        make(data="synth-small", wasted=1.5)


def wander(benchmark, walker, count: int, steps: int):
    """Views of random walks, and the episode each belongs to."""
    for number, task in enumerate(benchmark.task_set("valid_unseen", count).tasks):
        episode, rng = benchmark._player.episode(task), random.Random(number)
        history: list[tuple[str, str]] = []
        for step in range(steps):
            observation = episode.observation()
            yield StepView(observation, step, steps, tuple(history)), episode
            command = walker(observation.admissible, rng)
            if command not in observation.admissible:
                command = "take nothing"
            history.append((observation.text, command))
            if episode.step(command).done:
                break


def test_compact_prompts_and_commands_stay_in_the_lexicon(small, stock_size, walker):
    lexicon = set(small.lexicon())
    assert len(small.lexicon()) == len(lexicon)
    lengths = []
    for benchmark in (small, stock_size):
        for view, _ in wander(benchmark, walker, 12, 20):
            prompt = benchmark.compact(view)
            assert prompt.startswith("[task] ")
            assert prompt.endswith("[act]")
            assert " ".join(benchmark.words(prompt)) == prompt
            lengths += [len(benchmark.words(prompt))] * (benchmark is small)
            for text in (prompt, *view.observation.admissible):
                if "take nothing" not in text:
                    assert set(benchmark.words(text)) <= lexicon, text
    assert sum(lengths) / len(lengths) < 50


def test_what_was_read_is_what_is_so(small, walker):
    """Facts from the text agree with the engine's own state, on every step."""
    checked = 0
    for view, episode in wander(small, walker, 12, 25):
        game, facts = episode.session.game, view.observation.facts
        game._move_text(episode.session.node.changed)
        names = {identifier: entity.name for identifier, entity in game._entities.items()}

        def true(predicate: str, game=game, names=names) -> set[tuple[str, ...]]:
            known = (fact for group in game._state._facts.values() for fact in group if fact.name == predicate)
            return {tuple(names[name] for name in fact.names) for fact in known}

        assert {held for _, held in true("holds")} == set(filter(None, [facts["holding"]]))
        assert {tuple(entry.split("@")) for entry in facts["seen"].split(",") if entry} <= true("inreceptacle")
        inside = {thing for thing, place in true("inreceptacle") if place == facts["location"]}
        if facts["door"] in ("open", "surface"):
            assert set(filter(None, facts["contents"].split(","))) == inside
        opened = {name for (name,) in true("opened")}
        assert (facts["location"] in opened) == (facts["door"] == "open")
        hot = {name for (name,) in true("ishot")}
        assert (facts["holding"] in hot) == ("hot" in facts["condition"].split())
        checked += bool(facts["holding"])
    assert checked > 10


def test_every_goal_sentence_is_read():
    for task, kind in rooms.KINDS.items():
        for template in benchmarks.alfworld.synth.upstream.goal_library()[task]["templates"]:
            sentence = template.format(obj="cup", recep="shelf", toggle="shelf", mrecep="")
            assert reading.read_goal(sentence) == reading.Goal(kind, "cup", "shelf")
    assert reading.read_goal("bring me a beer") == reading.Goal()


def view(step: int) -> StepView:
    history = tuple((f"text {number}", f"act {number}") for number in range(1, step + 1))
    return StepView(Observation("seen now", "put some cup on shelf", ("go to shelf 1", "look")), step, 50, history)


def test_messages(small):
    (message,) = small.messages(view(5))
    text = message["content"]
    assert message["role"] == "user"
    assert "put some cup on shelf" in text
    assert "[Observation 4: 'text 4', Action 4: 'act 4']\n[Observation 5: 'text 5', Action 5: 'act 5']" in text
    assert "text 3" not in text
    assert "Step 6." in text
    assert "['go to shelf 1'\n'look']" in text
    assert "text" not in small.messages(view(0))[0]["content"]
    assert "text 5" not in make(data="synth-small", history=0).messages(view(5))[0]["content"]


@pytest.mark.parametrize(
    ("reply", "action", "valid"),
    [
        ("<think>so</think><action> Go to Shelf 1 </action>", "go to shelf 1", True),
        ("<think>a</think><action>look</action><action>open</action>", "look", True),
        ("<action>look</action>", "look", False),
        ("<think>看</think><action>look</action>", "look", False),
        ("I will now quite certainly go to shelf 1 and look", "ertainly go to shelf 1 and look"[1:], False),
        ("", "", False),
    ],
)
def test_parse(small, reply, action, valid):
    parsed = small.parse(reply)
    assert (parsed.action, parsed.format_valid) == (action, valid)


def test_first_observation(small):
    (observation,) = small.pool(1).reset(small.task_set("train", 1).tasks)
    assert observation.text.startswith("You are in the middle of a room. Looking quickly around you, you see a ")
    assert observation.text.endswith(f"\n\nYour task is to: {observation.goal}.")
    assert "help" not in observation.admissible
    assert list(observation.admissible) == sorted(observation.admissible)
    assert observation.facts["room"].split(",") == [
        command.removeprefix("go to ") for command in observation.admissible if command.startswith("go to ")
    ]
