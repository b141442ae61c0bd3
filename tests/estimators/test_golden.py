"""The worked examples: numbers computed apart from this code, every case within 1e-6."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from algorithms import RolloutBatch, built_in, estimate

FILES = sorted((Path(__file__).parents[1] / "golden").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_case_matches(path):
    record = json.loads(path.read_text())
    batch = RolloutBatch.from_columns(success_reward=record["success_reward"], **record["rows"])
    for case in record["cases"]:
        result = estimate(case["estimator"], batch, **case["options"])
        name = f"{case['estimator']} {case['options']}"
        np.testing.assert_allclose(result.advantages, case["advantages"], rtol=0, atol=1e-6, err_msg=name)


def test_the_files_cover_all_built_in_estimators():
    seen = {case["estimator"] for path in FILES for case in json.loads(path.read_text())["cases"]}
    assert len(FILES) == 12
    assert seen == set(built_in())
