"""Learning curves: what is drawn, what is left out, and the files."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
from PIL import Image

from analysis.comparable import ComparisonError
from analysis.figures import learning_curves, training_curves
from analysis.load import load_runs


def curves_of(tmp_path):
    return training_curves(load_runs(tmp_path))


def test_line_is_the_mean_and_band_the_range_over_seeds(tmp_path, new_run):
    new_run("grpo", 1).attempt([0.2, 0.4, 0.6]).done()
    new_run("grpo", 2).attempt([0.4, 0.4, 1.0]).done()
    (curve,), left_out = curves_of(tmp_path)
    assert (curve.method, curve.seeds, curve.finished, left_out) == ("grpo", 2, True, [])
    np.testing.assert_allclose(curve.mean, [30, 40, 80])
    np.testing.assert_allclose(curve.low, [20, 40, 60])
    np.testing.assert_allclose(curve.high, [40, 40, 100])
    np.testing.assert_allclose(curve.seconds, [3.52, 7.04, 10.56])
    assert curve.updates.tolist() == [1, 2, 3]


def test_the_line_ends_where_one_seed_ends(tmp_path, new_run):
    new_run("grpo", 1).attempt([0.2, 0.4, 0.6]).done()
    new_run("grpo", 2).attempt([0.4, 0.6]).done()
    (curve,), _ = curves_of(tmp_path)
    assert curve.updates.tolist() == [1, 2]
    np.testing.assert_allclose(curve.mean, [30, 50])


def test_finished_runs_alone_make_a_line_where_there_are_any(tmp_path, new_run):
    new_run("grpo", 1).attempt([0.2, 0.4]).done()
    new_run("grpo", 2).attempt([0.9]).failed()
    new_run("gigpo", 1).attempt([0.5]).failed()
    new_run("graft", 1)
    new_run("graphhca", 1).attempt().done()
    new_run("initial", 1).attempt().done()
    curves, left_out = curves_of(tmp_path)
    assert [(c.method, c.seeds, c.finished) for c in curves] == [("grpo", 1, True), ("gigpo", 1, False)]
    assert left_out == ["grpo seed 2 (failed)", "graphhca seed 1 (no metrics)", "graft seed 1 (new)"]


def test_an_update_without_success_still_costs_its_seconds(tmp_path, new_run):
    unknown = '{"update": 2, "success": null, "timing/rollout": 1.0, "timing/advantage": 0.02,'
    unknown += ' "timing/old_logprob": 0.5, "timing/update": 2.0}\n'
    new_run("grpo").attempt([0.2], tail=unknown).attempt([0.4], first=3).done()
    (curve,), _ = curves_of(tmp_path)
    assert curve.updates.tolist() == [1, 3]
    np.testing.assert_allclose(curve.seconds, [3.52, 10.56])


def test_seconds_are_unknown_from_the_first_untimed_update_on(tmp_path, new_run):
    new_run("grpo").attempt([0.2], tail='{"update": 2, "success": 0.5}\n').attempt([0.4], first=3).done()
    (curve,), _ = curves_of(tmp_path)
    np.testing.assert_allclose(curve.seconds, [3.52, np.nan, np.nan])


def test_files_are_valid_complete_and_equal_for_equal_runs(tmp_path, finished_run):
    for seed in (1, 2):
        finished_run("grpo", seed)
        finished_run("graft", seed)
    runs = load_runs(tmp_path)
    first = learning_curves(runs, tmp_path / "out" / "curves.v1")
    second = learning_curves(runs, tmp_path / "again" / "curves.v1")
    assert [path.name for path in first] == ["curves.v1.png", "curves.v1.pdf"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["curves.v1.pdf", "curves.v1.png"]
    assert [a.read_bytes() == b.read_bytes() for a, b in zip(first, second, strict=True)] == [True, True]
    pdf = first[1].read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")
    with Image.open(first[0]) as image:
        image.load()
        pixels = np.asarray(image.convert("RGB"))
    blue = (np.abs(pixels.astype(int) - [0x01, 0x73, 0xB2]).max(axis=-1) < 8).sum()
    assert blue > 500  # grpo's line is there


@pytest.mark.parametrize("shape", ["nothing logged", "one seed", "one update", "untimed"])
def test_poor_sets_of_runs_still_give_a_figure(tmp_path, new_run, shape):
    run = new_run("grpo")
    if shape == "one seed":
        run.attempt([0.1, 0.2]).done()
    elif shape == "one update":
        run.attempt([0.1]).done()
    elif shape == "untimed":
        run.attempt(tail='{"update": 1, "success": 0.5}\n').done()
    for path in learning_curves(load_runs(tmp_path), tmp_path / "curves"):
        assert path.stat().st_size > 1000


def test_no_global_state_is_left_behind(tmp_path, finished_run):
    finished_run("grpo")
    before = dict(matplotlib.rcParams)
    learning_curves(load_runs(tmp_path), tmp_path / "curves")
    assert dict(matplotlib.rcParams) == before


def test_runs_that_differ_are_refused_before_a_file_is_written(tmp_path, finished_run):
    finished_run("grpo")
    finished_run("gigpo", protocol={"updates": 99})
    with pytest.raises(ComparisonError, match=r"protocol\.updates"):
        learning_curves(load_runs(tmp_path), tmp_path / "curves")
    assert not list(tmp_path.glob("curves*"))
