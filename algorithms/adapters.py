"""What of a model is trained: all of it, or LoRA adapters (Hu et al. 2021, arXiv:2106.09685) on frozen weights.

A `lora` configuration holds rank, alpha, dropout and target_modules. An adapted matrix W becomes
W + (alpha / rank) B A, with A [rank, in] random and B [out, rank] zero at first, so that training begins at the model
itself. Adapters are float32 whatever the frozen weights are. A checkpoint holds adapters only.

peft is imported late: it is an extra.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

ALL_LINEAR = "all-linear"  # every matrix of the decoder's layers, not the head


class AdapterError(ValueError):
    """Adapters that cannot be made or loaded; the message is one line that names the way out."""


def lora_config(model: nn.Module, lora: Mapping[str, Any] | None) -> Any:
    """peft's configuration of these adapters, None without any. AdapterError for modules that the model lacks."""
    if lora is None:
        return None
    from peft import LoraConfig

    targets = lora["target_modules"]
    if targets != ALL_LINEAR:
        _check_targets(model, targets)
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=lora["rank"],
        lora_alpha=lora["alpha"],
        lora_dropout=lora["dropout"],
        target_modules=targets,
    )


def _check_targets(model: nn.Module, targets: Sequence[str]) -> None:
    head = model.get_output_embeddings() if isinstance(model, PreTrainedModel) else None  # TRL trains none on it
    linear = (name for name, part in model.named_modules() if isinstance(part, nn.Linear) and part is not head)
    known = sorted({name.rpartition(".")[2] for name in linear})
    for target in targets:
        if target not in known:
            raise AdapterError(f"model.lora.target_modules: no linear module {target!r} (there are {', '.join(known)})")


def hold_for_training(model: PreTrainedModel, lora: Mapping[str, Any] | None) -> PreTrainedModel:
    """The model with weights that an optimizer can move, changed in place.

    Weights that are trained are held in float32 (computed in bfloat16 on a GPU, by autocast): a bfloat16 number near
    0.02 has neighbors 1.2e-4 away, and steps of a learning rate of 1e-6 would be rounded away, nearly all of them.
    Frozen ones stay as they are.
    """
    return model if lora is not None or model.dtype == torch.float32 else model.float()


@contextmanager
def frozen_kept(model: Any) -> Iterator[None]:
    """Within it adapters may be merged and taken out again: afterwards adapted weights are what they were, bit for bit.

    W + BA - BA is rounded twice, so that frozen weights would wander a little with every update, away from what the
    checkpoint's adapters belong to and the KL term is measured to. They wait in the computer's memory meanwhile.
    """
    weights = [weight for name, weight in model.named_parameters() if ".base_layer." in name]
    kept = [_local(weight).to("cpu", copy=True) for weight in weights]
    try:
        yield
    finally:
        for weight, before in zip(weights, kept, strict=True):
            _local(weight).copy_(before)


def _local(weight: torch.Tensor) -> torch.Tensor:
    """This process's part of a weight, outside of autograd."""
    data = weight.detach()
    return data.to_local() if hasattr(data, "to_local") else data


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds adapters rather than a whole model."""
    return (folder / "adapter_config.json").is_file()


def with_adapter(base: PreTrainedModel, folder: Path) -> Any:
    """`base` with the adapters of a checkpoint, not merged: what the trainer evaluated. AdapterError without peft."""
    try:
        from peft import PeftModel
    except ImportError:
        raise AdapterError(f"{folder} holds LoRA adapters; get peft with: pip install -e '.[peft]'") from None
    return PeftModel.from_pretrained(base, folder)
