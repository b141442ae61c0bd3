"""The private parts of TRL that the trainer overrides or calls, as they are in the pinned release."""

from __future__ import annotations

import inspect

import pytest
from trl import GRPOTrainer
from trl.trainer.utils import FusedCausalLMOutput


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("_generate_and_score_completions", "self inputs"),
        ("_prepare_inputs", "self generation_batch"),
        ("training_step", "self model inputs num_items_in_batch"),
        ("_compute_loss", "self model inputs"),
        ("_generate_single_turn", "self prompt_ids images multimodal_fields num_generations has_tool_images"),
        ("log", "self logs start_time"),
        ("_save_checkpoint", "self model trial"),
        ("_get_output_dir", "self trial"),
    ],
)
def test_signatures(method, parameters):
    assert list(inspect.signature(getattr(GRPOTrainer, method)).parameters) == parameters.split()


def test_scoring_takes_what_the_trainer_passes():
    parameters = list(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
    assert parameters[:5] == ["self", "model", "input_ids", "attention_mask", "logits_to_keep"]


def test_own_heads_return_what_the_fused_head_returns():
    assert {"loss", "log_probs", "entropy"} <= set(FusedCausalLMOutput.__dataclass_fields__)


def test_loss_reads_the_keys_the_trainer_builds():
    source = inspect.getsource(GRPOTrainer._compute_loss)
    keys = (
        "prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages",
        "old_per_token_logps", "ref_per_token_logps", "importance_sampling_ratio", "num_items_in_batch",
    )  # fmt: skip
    for key in keys:
        assert f'"{key}"' in source, key
