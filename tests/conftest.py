"""Settings of the whole suite: no network, one thread a process, nothing written outside the tests' own folders."""

from __future__ import annotations

import os

# Before any numerical library is imported; worker processes inherit it.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
