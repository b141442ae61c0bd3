"""Numbers that say how much signal an estimator found; the same ones for all of them."""

from __future__ import annotations

import numpy as np

from algorithms.estimators.base import Credit
from algorithms.states import EncodedBatch

ZERO = 1e-12  # advantages below this teach nothing


def signal_diagnostics(batch: EncodedBatch, credit: Credit) -> dict[str, float]:
    """Plain numbers about a batch and its advantages; fractions are in [0, 1].

    rows, trajectories, groups, nodes (states acted in)    counts
    merge_rate                 1 - nodes/rows
    singleton_groups           pools of one that the estimator met: nothing to compare with
    singleton_fraction         share of rows in them
    zero_fraction              share of advantages below 1e-12
    too_easy_groups, too_hard_groups   share of task groups in which all, or no, trajectories succeed
    advantage_std              population standard deviation over rows
    """
    layout = batch.layout
    nodes = int(np.count_nonzero(np.bincount(batch.state)))
    solved = _group_success(batch)
    return {
        "rows": layout.rows,
        "trajectories": layout.trajectories,
        "groups": layout.groups,
        "nodes": nodes,
        "merge_rate": 1.0 - nodes / layout.rows,
        "singleton_groups": credit.singletons,
        "singleton_fraction": float(np.mean(credit.lone)),
        "zero_fraction": float(np.mean(np.abs(credit.advantages) < ZERO)),
        "too_easy_groups": float(np.mean(solved == 1.0)),
        "too_hard_groups": float(np.mean(solved == 0.0)),
        "advantage_std": float(np.std(credit.advantages)),
        **credit.diagnostics,
    }


def _group_success(batch: EncodedBatch) -> np.ndarray:
    """[groups] share of trajectories that succeed."""
    layout = batch.layout
    group = layout.group[layout.start]
    solved = np.bincount(group, weights=batch.success[layout.start], minlength=layout.groups)
    return solved / np.bincount(group, minlength=layout.groups)
