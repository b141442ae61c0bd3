"""Episodes as they are recorded, and evaluations that disturb nothing."""

from __future__ import annotations

import pytest
import torch
from corridor import Corridor
from test_gradients import make_policy

from algorithms.collector import Collector, Episode, rollout_batch, rollout_columns
from algorithms.evaluation import evaluate, sampler, success_rates
from algorithms.generation import BatchEngine
from algorithms.policy import ChatPolicy, PolicyError
from benchmarks.base import Observation, StepView


def scripted(policy, *commands):
    """A sampler that writes the given commands, one a turn, for every episode; None is a reply cut short."""
    turns = iter(commands)

    def generate(prompts):
        command = next(turns)
        ids = policy.command_ids(command or "go left")
        return [ids if command else ids[:1]] * len(prompts), None

    return generate


def play(*commands, tasks=1, horizon=6, start=2, goal=4):
    policy = make_policy()
    benchmark = policy.benchmark
    task = next(t for t in benchmark.task_set("train").tasks if t.payload == {"start": start, "goal": goal})
    episodes = [Episode(task, "g", i) for i in range(tasks)]
    collector = Collector(benchmark, policy, benchmark.pool(8), horizon=horizon, state_key="observation", history=2)
    collector.collect(episodes, BatchEngine(scripted(policy, *commands)))
    return episodes, benchmark


def test_rows_of_a_solved_episode():
    episodes, benchmark = play("go right", "wait", "go right", tasks=2)
    columns = rollout_columns(episodes)
    assert columns["step"] == [0, 1, 2] * 2
    assert columns["trajectory"] == [0] * 3 + [1] * 3
    assert columns["state"][:3] == [f"you are in room {i} ." for i in (2, 3, 3)]
    assert columns["next_state"][:3] == [f"you are in room {i} ." for i in (3, 3, 4)]
    assert columns["reward"][:3] == [0, 0, 10]
    assert columns["success"] == [True] * 6
    batch = rollout_batch(columns, benchmark)
    assert batch.success_reward == 10
    assert batch.column("benchmark")[0] == "corridor-v1"


def test_horizon_ends_an_episode_without_success():
    (episode,), _ = play("wait", "wait", horizon=2)
    assert len(episode.steps) == 2
    assert not episode.success


def test_invalid_steps_are_counted_apart():
    (episode,), _ = play(None, "go left", "go left", "go left", horizon=4)  # cut short; then left into the wall
    columns = rollout_columns([episode])
    assert columns["format_valid"] == [False, True, True, True]
    assert columns["admissible"] == [False, True, True, False]
    assert columns["valid"] == [False, True, True, False]
    assert rollout_columns([episode], "format")["valid"] == [False, True, True, True]


def test_a_process_without_episodes_joins_every_call():
    policy = make_policy()
    collector = Collector(policy.benchmark, policy, policy.benchmark.pool(2), horizon=2, state_key="full", history=2)
    task = policy.benchmark.task_set("train", 1).tasks[0]
    episodes, calls = [Episode(task, "g", 0)], []
    others = iter([3, 2, 1, 0, 0])  # what other processes still have active

    def generate(prompts):
        calls.append(len(prompts))
        return [policy.command_ids("wait")] * len(prompts), None

    collector.collect(episodes, BatchEngine(generate), any_active=lambda count: count + next(others) > 0)
    assert calls == [1, 1, 1]
    assert len(episodes[0].steps) == 2


def evaluator(policy, seed, slots=8, temperature=1.0):
    benchmark = policy.benchmark
    collector = Collector(benchmark, policy, benchmark.pool(slots), horizon=6, state_key="observation", history=2)
    engine = BatchEngine(sampler(policy, temperature=temperature, max_new_tokens=6))
    return evaluate(collector, benchmark.task_set("test", 10), engine, repeats=2, seed=seed, slots=slots)


def test_evaluation_plays_every_task_equally_often_and_repeats():
    policy = make_policy()
    rows = evaluator(policy, seed=1)
    assert [(r["task"], r["repeat"]) for r in rows] == [
        (t.id, k) for t in policy.benchmark.task_set("test", 10).tasks for k in (0, 1)
    ]
    assert rows == evaluator(policy, seed=1)
    assert rows != evaluator(policy, seed=2)
    rates = success_rates(rows)
    assert rates["all"] == sum(r["success"] for r in rows) / 20
    assert set(rates) == {"all", "near", "far"}


def test_greedy_evaluation_does_not_depend_on_the_number_of_slots():
    policy = make_policy()
    assert evaluator(policy, 1, slots=3, temperature=0) == evaluator(policy, 5, slots=20, temperature=0)


def test_evaluation_leaves_the_random_state_alone():
    policy = make_policy()
    policy.model.train()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    evaluator(policy, seed=1)
    assert torch.equal(torch.rand(3), expected)
    assert policy.model.training


class Words:
    """As much of a tokenizer as a chat policy uses: one id per word."""

    eos_token_id = 0

    def apply_chat_template(self, messages, **options):
        self.options = options
        return messages[0]["content"]

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [1] * len(text.split())}


class Remembering(Corridor):
    def compact(self, view):
        past = " ".join(f"{o} {a}" for o, a in view.history)
        return f"{view.observation.goal} {past} {view.observation.text}"


def chat_policy(limit, thinking=None):
    return ChatPolicy(None, Words(), Remembering(), "free", max_prompt_tokens=limit, thinking=thinking)


def long_view():
    history = (("one two three", "go left"), ("four five six", "go right"))
    return StepView(Observation("you are in room 2 .", "reach room 5"), 2, 6, history)


def test_long_prompts_lose_their_oldest_history_first():
    assert len(chat_policy(100).render(long_view())) == 19
    assert len(chat_policy(15).render(long_view())) == 14
    assert len(chat_policy(9).render(long_view())) == 9
    with pytest.raises(PolicyError, match="raise that limit"):
        chat_policy(8).render(long_view())


def test_thinking_is_passed_on_only_where_it_is_set():
    policy = chat_policy(100)
    policy.render(long_view())
    assert "enable_thinking" not in policy.tokenizer.options
    policy = chat_policy(100, thinking=False)
    policy.render(long_view())
    assert policy.tokenizer.options["enable_thinking"] is False
