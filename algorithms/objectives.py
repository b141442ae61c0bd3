"""Policy objectives, as settings of TRL's loss, and the weights that make micro-batches add up to the whole.

Every method can be trained with either objective; an algorithm's YAML names the one its paper uses.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class Objective:
    """`loss_type` and `importance_sampling_level` are GRPOConfig fields; `mean_over` is what the loss averages."""

    loss_type: str
    importance_sampling_level: str
    mean_over: str  # "tokens" | "rows"


OBJECTIVES = {
    # PPO's clipped surrogate per token, mean over all tokens of the minibatch (verl's default, the papers' runs)
    "ppo": Objective("dapo", "token", "tokens"),
    # GRAFT eq. 3-4: one importance ratio per step, exp(mean log-ratio of its tokens), clipped, mean over steps
    "grpo_c": Objective("grpo", "sequence", "rows"),
}


def objective(name: str) -> Objective:
    """The objective `name`; ValueError names the nearest one."""
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    near = difflib.get_close_matches(str(name), OBJECTIVES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown objective {name!r}{hint} (known: {', '.join(OBJECTIVES)})")
