"""Settings of the whole suite: no network, one thread a process, nothing written outside the tests' own folders."""

from __future__ import annotations

import importlib.metadata
import os

# Before any numerical library is imported; worker processes inherit it.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"


_all_entry_points = importlib.metadata.entry_points


def _without_foreign(**selection):
    found = _all_entry_points(**selection)
    if selection.get("group") != "creditbench.estimators":
        return found
    return importlib.metadata.EntryPoints(e for e in found if e.dist is not None and e.dist.name == "creditbench")


# Estimators of other installed packages are none of this suite's business; a test that wants one registers it. Set
# here, not in a fixture: test modules list the estimators while they are collected.
importlib.metadata.entry_points = _without_foreign
