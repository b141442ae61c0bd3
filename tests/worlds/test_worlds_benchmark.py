"""The worlds as a benchmark of the common trainer."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import benchmarks
from benchmarks.base import Benchmark, StepView
from benchmarks.worlds.catalog import KINDS
from benchmarks.worlds.suite import SPLITS
from benchmarks.worlds.world import NONSENSE


@pytest.fixture(scope="module")
def worlds():
    return benchmarks.load("worlds")


def play(worlds, task, choose, horizon=30):
    """(success, steps) of one episode; `choose(observation)` gives the command."""
    pool = worlds.pool(1)
    (observation,) = pool.reset([task])
    for step in range(1, horizon + 1):
        (result,) = pool.step([(0, choose(observation))])
        observation = result.observation
        if result.done:
            return result.success, step
    return False, horizon


class TestTasks:
    def test_it_is_a_benchmark_with_every_kind_in_turn(self, worlds):
        assert isinstance(worlds, Benchmark)
        tasks = worlds.task_set("train", len(KINDS)).tasks
        assert [task.kind for task in tasks] == list(KINDS)
        assert worlds.record() == {"label": "worlds-v1", "kinds": list(KINDS)}

    def test_lists_are_stable_and_splits_disjoint(self, worlds):
        ids = [{task.id for task in worlds.task_set(split, 50).tasks} for split in SPLITS]
        assert len(set.union(*ids)) == 150
        assert worlds.task_set("train", 20, 5).hash == benchmarks.load("worlds").task_set("train", 20, 5).hash
        assert worlds.task_set("train", 20).tasks[5:8] == worlds.task_set("train", 3, 5).tasks
        json.dumps([dict(task.payload) for task in worlds.task_set("train", 20).tasks], allow_nan=False)

    def test_kinds_can_be_chosen(self):
        chosen = benchmarks.load("worlds", kinds="sokoban, detour")
        assert chosen.kinds == ("detour", "sokoban")
        assert {task.kind for task in chosen.task_set("train", 10).tasks} == {"detour", "sokoban"}

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"kinds": "sokobn"}, "did you mean 'sokoban'"),
            ({"kinds": ""}, "unknown world ''"),
            ({"kinds": 3}, "kinds must be"),
            ({"history": -1}, "history must be"),
            ({"size": 3}, "unknown option 'size'"),
        ],
    )
    def test_bad_options_are_named(self, options, message):
        with pytest.raises(ValueError, match=message):
            benchmarks.load("worlds", **options)

    def test_bad_lists_are_named(self, worlds):
        with pytest.raises(ValueError, match="unknown split 'test'"):
            worlds.task_set("test")
        with pytest.raises(ValueError, match="has 4096 tasks"):
            worlds.task_set("train", 10, 4090)


class TestEpisodes:
    def test_doing_nothing_never_succeeds(self, worlds):
        for task in worlds.task_set("train", 2 * len(KINDS)).tasks:
            assert play(worlds, task, lambda _: NONSENSE) == (False, 30)

    def test_the_expert_wins_wherever_winning_is_sure(self, worlds):
        for task in worlds.task_set("valid_seen", 3 * len(KINDS)).tasks:
            # the first shown command of every face: the demonstrations tell the best one
            best = {view.observation.keys["engine"]: c for view, c in worlds.demonstrations([task], 40, 0)}
            won, steps = play(worlds, task, lambda o, best=best: best.get(o.keys["engine"], NONSENSE))
            if task.kind not in ("slip", "optional_stop"):
                assert won, task.id
                assert steps <= 15, task.id

    def test_inadmissible_commands_change_nothing_and_are_marked(self, worlds):
        pool = worlds.pool(1)
        (before,) = pool.reset(worlds.task_set("train", 1).tasks)
        (result,) = pool.step([(0, "fly away")])
        assert result.observation == before
        assert not result.admissible
        assert not result.done

    def test_a_pool_started_again_meets_the_same_chances(self, worlds):
        tasks = [task for task in worlds.task_set("train", 40).tasks if task.kind in ("slip", "optional_stop")]

        def walk():
            pool = worlds.pool(len(tasks))
            seen = pool.reset(tasks)
            return [r.observation.text for r in pool.step([(i, o.admissible[0]) for i, o in enumerate(seen)])]

        assert walk() == walk()

    def test_misuse_is_refused(self, worlds):
        tasks = worlds.task_set("train", 2).tasks
        pool = worlds.pool(1)
        with pytest.raises(ValueError, match="2 tasks do not fit"):
            pool.reset(tasks)
        pool.reset(tasks[:1])
        with pytest.raises(ValueError, match="actions name slots"):
            pool.step([(1, "go on")])
        with pytest.raises(ValueError, match="1 slot or more"):
            worlds.pool(0)


class TestPrompts:
    def test_every_word_is_in_the_lexicon(self, worlds):
        lexicon = set(worlds.lexicon())
        for task in worlds.task_set("valid_unseen", 6 * len(KINDS)).tasks:
            for view, command in worlds.demonstrations([task], 1, 0):
                words = worlds.words(worlds.compact(view))
                assert set(words) <= lexicon
                assert " ".join(words) == worlds.compact(view)
                for text in (command, *view.observation.admissible):
                    assert set(worlds.words(text)) <= lexicon

    def test_a_chat_prompt_holds_the_task_the_past_and_the_commands(self, worlds):
        (observation,) = worlds.pool(1).reset(worlds.task_set("train", 1).tasks)
        view = StepView(observation, 1, 15, (("path mark 0 .", "go on"),))
        (message,) = worlds.messages(view)
        for part in (observation.goal, "You did: go on", observation.text, *observation.admissible):
            assert part in message["content"]
        assert "You did" not in benchmarks.load("worlds", history=0).messages(view)[0]["content"]

    def test_replies_are_read(self, worlds):
        assert worlds.parse("hm <action> Go ON </action>").action == "go on"
        broken = worlds.parse("Go on")
        assert (broken.action, broken.format_valid) == ("go on", False)


@pytest.mark.slow
def test_the_common_trainer_trains_on_worlds(tmp_path):
    command = [
        sys.executable, "-m", "sweeps.cli", "train", "benchmark=worlds", "algorithm=graft", "protocol.updates=2",
        "model.warm_start.steps=20", "model.warm_start.tasks=30", "--out", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "update 2/2" in done.stdout
    assert len(list(tmp_path.glob("runs/*/attempts/*/rollouts/*.parquet"))) == 2
