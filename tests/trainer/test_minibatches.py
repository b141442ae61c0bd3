"""Rows are never lost, and the number of optimizer steps does not depend on episode lengths."""

from __future__ import annotations

import pytest
import torch
from test_gradients import PROTOCOL, RESOURCES, keep_rows, make_policy, make_trainer, reply_logps, training_rows

from algorithms.objectives import objective
from algorithms.trainer import _trim, checkpoints, sampling_correction, task_schedule
from algorithms.trl_settings import grpo_config, refuse_unsupported


def test_every_row_is_in_exactly_one_minibatch(tmp_path):
    trainer = make_trainer(tmp_path, minibatches=3, epochs=2, updates=2, rows_per_microbatch=4, learning_rate=0.01)
    kept, sizes, step = keep_rows(trainer), [], trainer.training_step

    def counting(model, inputs, num_items_in_batch=None):
        loss = step(model, inputs, num_items_in_batch)
        sizes.append(sum(piece["advantages"].numel() for piece in trainer._buffered_inputs))
        return loss

    trainer.training_step = counting
    trainer.train()
    assert trainer.state.global_step == 2 * 3 * 2
    assert len(kept) == 2
    for update in range(2):
        rows = training_rows(kept[update])
        assert set(sizes[update * 6 : update * 6 + 6]) == {len(rows)}
    assert [row["update"] for row in trainer.rows_logged] == [1, 2]
    assert [row["rows"] for row in trainer.rows_logged] == [len(training_rows(k)) for k in kept]


def test_filler_rows_carry_nothing(tmp_path):
    trainer = make_trainer(tmp_path, rows_per_microbatch=5)
    batch = trainer._generate_and_score_completions([{"task": i // 4} for i in range(12)])
    rows = batch["advantages"].numel()
    micro, tokens, total = trainer._microbatches(batch)
    assert total == rows
    assert len({piece["advantages"].numel() for piece in micro}) == 1
    assert int(tokens) == int(batch["completion_mask"].sum())
    assert sum(int((p["completion_mask"] * p["tool_mask"]).sum()) for p in micro) == int(tokens)
    assert torch.isclose(sum(p["advantages"].sum() for p in micro), batch["advantages"].sum(), atol=1e-5)


def test_trim_cuts_only_padding():
    batch = {
        "prompt_ids": torch.tensor([[0, 0, 5], [0, 6, 7]]), "prompt_mask": torch.tensor([[0, 0, 1], [0, 1, 1]]),
        "completion_ids": torch.tensor([[8, 1, 0, 0], [9, 1, 0, 0]]),
        "completion_mask": torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0]]),
        "old_per_token_logps": torch.zeros(2, 4), "advantages": torch.tensor([1.0, 2.0]),
    }  # fmt: skip
    cut = _trim(batch)
    assert cut["prompt_ids"].tolist() == [[0, 5], [6, 7]]
    assert cut["completion_ids"].tolist() == [[8, 1], [9, 1]]
    assert cut["old_per_token_logps"].shape == (2, 2)
    assert cut["advantages"].tolist() == [1.0, 2.0]


def test_rollouts_are_written_and_estimate_to_the_same_advantages(tmp_path):
    from algorithms import RolloutBatch, estimate

    trainer = make_trainer(tmp_path, updates=1)
    trainer.recorder.rollouts, trainer.recorder.with_text = tmp_path, True
    kept = keep_rows(trainer)
    trainer.train()
    batch = RolloutBatch.read_parquet(tmp_path / "000001.parquet")
    result = estimate("gigpo", batch, invalid_action_penalty=0.1)
    trained_on = torch.tensor([a for *_, a in training_rows(kept[0])], dtype=torch.float64)
    assert torch.allclose(torch.from_numpy(result.advantages), trained_on, atol=1e-6)
    assert "[act]" in batch.column("prompt")[0]
    assert batch.column("completion")[0].startswith(("go", "wait"))


@pytest.mark.parametrize(
    ("mode", "low", "high", "expected"),
    [
        ("token_truncate", 0.5, 2.0, [[0.5, 2.0, 1.0]]),
        ("token_mask", 0.5, 2.0, [[0.0, 0.0, 1.0]]),
        ("sequence_truncate", None, 1.5, [[1.0]]),
        ("sequence_mask", 1.1, None, [[0.0]]),
    ],
)
def test_sampling_correction(mode, low, high, expected):
    old = torch.tensor([[-3.0, -1.0, -5.0]])
    sampled = torch.tensor([[-1.0, -3.0, float("nan")]])
    ratio, gap = sampling_correction(old, sampled, torch.ones(1, 3), mode=mode, low=low, high=high)
    assert torch.allclose(ratio, torch.tensor(expected))
    assert gap == pytest.approx(2.0)


def test_episodes_that_do_not_divide_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"= 12 episodes do not divide by 1 processes x 5 minibatches"):
        grpo_config({**PROTOCOL, "minibatches": 5}, RESOURCES, objective("ppo"), seed=1, folder=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps=1"),
        ({"shuffle_dataset": True}, "laid out in advance"),
        ({"top_p": 0.9}, "biases the importance ratio"),
        ({"save_steps": 3}, "multiple of 2"),
        ({"loss_type": "bnpo"}, "not one of the objectives"),
    ],
)
def test_settings_that_would_change_the_estimate_are_refused(tmp_path, change, message):
    args = grpo_config({**PROTOCOL, "minibatches": 2}, RESOURCES, objective("ppo"), seed=1, folder=tmp_path)
    for name, value in change.items():
        setattr(args, name, value)
    with pytest.raises(ValueError, match=message):
        refuse_unsupported(args)


def test_kl_to_the_policy_it_started_from(tmp_path):
    policy = make_policy()
    policy.model.save_pretrained(tmp_path / "start")
    policy.model = type(policy.model).from_pretrained(tmp_path / "start")
    trainer = make_trainer(tmp_path / "run", policy=policy, updates=2, kl_coefficient=0.5, learning_rate=0.5)
    batches, generate = [], trainer._generate_and_score_completions

    def keeping(inputs):
        batches.append(generate(inputs))
        return batches[-1]

    trainer._generate_and_score_completions = keeping
    trainer.train()
    first, second = (row["kl"] for row in trainer.rows_logged)
    assert first == pytest.approx(0, abs=1e-6)
    assert second > 1e-5
    mask = batches[1]["completion_mask"].bool()
    replies = batches[1]["completion_ids"][mask]
    assert replies.numel() == batches[1]["ref_per_token_logps"][mask].numel()
    start = type(policy.model).from_pretrained(tmp_path / "start")
    row = {k: v[0] for k, v in batches[1].items()}
    prompt, reply = (
        row["prompt_ids"][row["prompt_mask"] > 0].tolist(),
        row["completion_ids"][row["completion_mask"] > 0],
    )
    expected = reply_logps(start, prompt, reply.tolist())
    assert torch.allclose(row["ref_per_token_logps"][: len(reply)], expected, atol=1e-5)


def test_unknown_objective_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'grpo_c'"):
        objective("grpoc")


def test_unknown_state_key_names_the_known(tmp_path):
    trainer = make_trainer(tmp_path, policy=make_policy())
    trainer.collector.state_key = "engin"
    with pytest.raises(ValueError, match=r"state_key 'engin' is not offered here \(known: observation, full\)"):
        trainer.train()


def test_checkpoints_are_ordered_by_number(tmp_path):
    for name in ("checkpoint-10", "checkpoint-9", ".partial", "other"):
        (tmp_path / name).mkdir()
    assert [p.name for p in checkpoints(tmp_path)] == ["checkpoint-9", "checkpoint-10"]


def test_schedule_passes_over_all_tasks_and_has_a_fixed_beginning():
    order = task_schedule(5, per_update=2, updates=5, seed=1)
    assert sorted(order[:5]) == sorted(order[5:]) == list(range(5))
    assert order[:5] != order[5:]
    assert task_schedule(5, 2, 3, 1) == order[:6]
    assert task_schedule(5, 2, 5, 2) != order
