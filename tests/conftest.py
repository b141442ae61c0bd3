"""Settings of the whole suite: no network, one thread a process, nothing written outside the tests' own folders."""

from __future__ import annotations

import importlib.metadata
import os

import pytest

# Before any numerical library is imported; worker processes inherit it.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"


@pytest.fixture(autouse=True)
def only_our_estimators(monkeypatch):
    """Estimators of other installed packages are none of this suite's business; a test that wants one registers it."""
    found = importlib.metadata.entry_points

    def without_foreign(**selection):
        return () if selection.get("group") == "creditbench.estimators" else found(**selection)

    monkeypatch.setattr(importlib.metadata, "entry_points", without_foreign)
