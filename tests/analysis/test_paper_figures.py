"""Figures: what they draw equals the known truth, holes are named, files are whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from algorithms import RolloutBatch
from analysis.comparable import ComparisonError, method_names
from analysis.figure_catalog import ON_LIST, PLAIN, draw_figure, figure_names, wanted
from analysis.figure_scores import final_scores, sensitivity, sweeps
from analysis.figure_states import group_size_distribution, group_size_dynamics, propagation_dynamics
from analysis.figure_training import average_turns, stage_seconds, stage_times
from analysis.load import load_runs
from analysis.spec import SpecError
from analysis.stored_rollouts import moments, spaced
from analysis.synthetic import Episode, SyntheticRun, make_config, write_run


def rng(seed=1):
    return np.random.default_rng(seed)


def run_of(algorithm, seed, *, won=(2, 1), state="done", updates=4, **keys):
    """A run with `won[i]` of three episodes of the i-th kind solved after training."""
    run = SyntheticRun(make_config(algorithm, seed, **keys), updates=updates, state=state)
    episodes = [Episode(kind, i < n, 0.0, 5) for kind, n in zip(("pick", "look"), won, strict=True) for i in range(3)]
    run.evaluations["seen_games", "after"] = episodes
    return run


def store_rollouts(folder: Path, updates=(1, 4)):
    """Two trajectories that share their first state: of `update` steps each."""
    (folder / "attempts" / "0001" / "rollouts").mkdir()
    for update in updates:
        rows = [(t, step) for t in (0, 1) for step in range(update)]
        batch = RolloutBatch.from_columns(
            success_reward=10.0,
            group=["g"] * len(rows),
            trajectory=[t for t, _ in rows],
            step=[step for _, step in rows],
            state=["start" if step == 0 else f"s{t}-{step}" for t, step in rows],
            action=[f"go {t}" for t, _ in rows],
            next_state=[f"s{t}-{step + 1}" for t, step in rows],
            valid=[True] * len(rows),
            reward=[10.0 if t == 0 and step == update - 1 else 0.0 for t, step in rows],
            success=[t == 0 for t, _ in rows],
        )
        batch.write_parquet(folder / "attempts" / "0001" / "rollouts" / f"{update:06d}.parquet")


@pytest.fixture
def runs_folder(tmp_path):
    """Three methods, two seeds; GRAFT's second seed crashed, GiGPO's is missing. GRPO and GRAFT stored rollouts."""
    for algorithm, seed, state in (
        ("grpo", 1, "done"),
        ("grpo", 2, "done"),
        ("gigpo", 1, "done"),
        ("graft", 1, "done"),
    ):
        folder = write_run(tmp_path, run_of(algorithm, seed, state=state, won=(seed, 3)), rng(seed))
        if seed == 1 and algorithm != "gigpo":
            store_rollouts(folder)
    write_run(tmp_path, run_of("graft", 2, state="failed"), rng())
    return tmp_path


@pytest.fixture
def runs(runs_folder):
    return load_runs(runs_folder)


# --- all of them


@pytest.mark.parametrize("name", figure_names())
def test_every_figure_is_drawn_from_a_set_with_holes(runs, tmp_path, name):
    drawn = draw_figure(name, runs, tmp_path / "figures", ["png"])
    assert drawn.files
    for path in drawn.files:
        with Image.open(path) as image:
            image.load()
            assert np.asarray(image.convert("L")).std() > 3  # not a blank page
    if name not in ("case_graphs",) and "distribution" not in name and name != "propagation_dynamics":
        assert any("graft seed 2 (failed)" in line for line in drawn.left_out)
    assert not plt.get_fignums()


@pytest.mark.parametrize("name", [*PLAIN, *ON_LIST])
def test_a_figure_needs_no_more_columns_than_it_says(runs, runs_folder, name):
    narrow = load_runs(runs_folder, wanted=wanted([name]))
    assert len(narrow.metrics.columns) + len(narrow.episodes.columns) < 17
    texts = [
        draw_figure(name, of, runs_folder / place, ["svg"]).files[0].read_text()
        for of, place in ((runs, "a"), (narrow, "b"))
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["subtasks", "stage_times", "propagation_distribution"])
def test_equal_runs_give_equal_files(runs, tmp_path, name):
    first = draw_figure(name, runs, tmp_path / "a").files
    second = draw_figure(name, runs, tmp_path / "b").files
    assert [path.suffix for path in first] == [".png", ".pdf", ".svg"]
    assert [a.read_bytes() == b.read_bytes() for a, b in zip(first, second, strict=True)] == [True] * 3
    assert "<text" in first[2].read_text()  # text stays text


@pytest.mark.parametrize("name", figure_names())
def test_a_set_without_anything_to_draw_gives_a_figure_that_says_so(tmp_path, name):
    write_run(tmp_path, SyntheticRun(make_config("grpo", 1), state="new"), rng())
    drawn = draw_figure(name, load_runs(tmp_path), tmp_path / "figures", ["svg"])
    assert all("nothing to draw yet" in path.read_text() for path in drawn.files)
    assert any(line.startswith("grpo") for line in drawn.left_out)


def test_each_comparable_set_gets_its_own_file(runs_folder):
    write_run(runs_folder, run_of("grpo", 1, protocol__horizon=99), rng())
    write_run(runs_folder, run_of("grpo", 1, model__name="other"), rng())
    drawn = draw_figure("subtasks", load_runs(runs_folder), runs_folder / "figures", ["png"])
    names = {path.name for path in drawn.files}
    base = "subtasks-alfworld-tiny-paper_alfworld"
    assert names == {f"{base}.png", f"{base}-2.png", "subtasks-alfworld-other-paper_alfworld.png"}


def test_unknown_figures_formats_and_lists_are_errors_that_name_what_there_is(runs, tmp_path):
    with pytest.raises(SpecError, match=r"no figure 'stage_time'; did you mean 'stage_times'"):
        draw_figure("stage_time", runs, tmp_path)
    with pytest.raises(SpecError, match=r"no format 'gif' \(known: png, pdf, svg\)"):
        draw_figure("subtasks", runs, tmp_path, ["gif"])
    with pytest.raises(ComparisonError, match=r"no evaluation list 'x' in these runs \(known: seen_games\)"):
        draw_figure("subtasks", runs, tmp_path, ["png"], evaluation_list="x")


def test_two_runs_of_one_method_and_seed_are_refused(runs_folder):
    source = next((runs_folder / "runs").iterdir())
    shutil.copytree(source, runs_folder / "runs" / "copy")
    with pytest.raises(ComparisonError, match="leave one out"):
        draw_figure("subtasks", load_runs(runs_folder), runs_folder / "figures", ["png"])


# --- what they draw


def test_scores_are_percent_by_seed_and_kind(runs):
    scores = final_scores(runs, method_names(runs))
    assert (scores.name, scores.kinds) == ("seen_games", ("pick", "look"))
    np.testing.assert_allclose(scores.by_method["grpo"], [[100 / 3, 100], [200 / 3, 100]])
    assert list(scores.by_method) == ["grpo", "gigpo", "graft"]
    assert scores.left_out == ["graft seed 2 (failed)"]


def test_turns_are_the_logged_ones(runs):
    figure, _ = average_turns(runs, method_names(runs))
    (axes,) = figure.axes
    line = next(line for line in axes.lines if line.get_label().startswith("grpo"))
    success = np.linspace(0.2, 0.8, 4)
    np.testing.assert_allclose(line.get_ydata(), (900 - 300 * success) / 64)
    assert line.get_label() == "grpo (n=2)"


def test_group_sizes_are_steps_a_state(runs):
    figure, _ = group_size_dynamics(runs, method_names(runs))
    line = next(line for line in figure.axes[0].lines if line.get_label().startswith("graft"))
    success = np.linspace(0.2, 0.8, 4)
    np.testing.assert_allclose(line.get_ydata(), (900 - 300 * success) / (300 - 100 * success))


def test_stage_seconds_are_means_over_updates_and_published_ones_are_hollow_marks(tmp_path):
    keys = {"model__name": "qwen2.5_1.5b", "model__path": "Qwen/Qwen2.5-1.5B-Instruct"}
    write_run(tmp_path, run_of("graphhca", 1, **keys), rng())
    runs = load_runs(tmp_path)
    seconds, left_out = stage_seconds(runs, method_names(runs))
    assert seconds["graphhca"]["update"].iloc[0] == pytest.approx(runs.metrics["timing/update"].mean())
    assert left_out == []
    figure, _ = stage_times(runs, method_names(runs))
    printed = {line.get_label(): line for line in figure.axes[0].lines if "published" in str(line.get_label())}
    assert sorted(printed["GraphHCA (published)"].get_xdata()) == pytest.approx([0.138, 25.1, 184.0])
    assert set(printed) == {"GraphHCA (published)", "GraphGPO (published)", "G2PO (published)"}


def test_stored_rollouts_give_group_sizes_and_degrees(runs):
    found, without = moments(runs, method_names(runs))
    assert without == ["gigpo"]
    at = {(m.method, m.update): m.statistics for m in found}
    assert set(at) == {("grpo", 1), ("grpo", 4), ("graft", 1), ("graft", 4)}
    assert at["grpo", 1].shares["group_size"][:2] == (0.0, 1.0)  # both steps in the start state
    assert at["grpo", 4].shares["group_size"][:2] == (0.75, 0.25)
    assert at["grpo", 4].overall["degree"] == pytest.approx(1.25)  # the start draws on both, the others on one
    figure, left_out = group_size_distribution(runs, method_names(runs))
    assert left_out == ["gigpo (no stored rollouts)"]
    assert [axes.get_title() for axes in figure.axes] == ["update 1", "update 4"]
    figure, _ = propagation_dynamics(runs, method_names(runs))
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [2.0, 1.25])


def test_moments_are_evenly_spaced_with_both_ends():
    assert spaced(list(range(1, 25)), 5) == [1, 7, 13, 18, 24]
    assert spaced([3, 5], 5) == [3, 5]
    assert spaced([], 5) == []


def test_sensitivity_varies_one_option_and_shows_the_published_values(tmp_path):
    keys = {"model__name": "qwen2.5_1.5b", "model__path": "Qwen/Qwen2.5-1.5B-Instruct"}
    for gamma, won in ((0.55, 1), (0.75, 2), (0.95, 3)):
        for seed in (1, 2):
            options = {**keys, "algorithm__options__gamma": gamma}
            write_run(tmp_path, run_of("graphhca", seed, won=(won, won), **options), rng())
    write_run(tmp_path, run_of("graphhca", 3, **keys, algorithm__options__floor=1e-6), rng())
    runs = load_runs(tmp_path)
    gamma = next(sweep for sweep in sweeps(runs) if sweep.option == "gamma")
    assert {value: len(ids) for value, ids in gamma.runs.items()} == {0.55: 2, 0.75: 2, 0.95: 2}
    figure, _ = sensitivity(runs, method_names(runs))
    axes = next(axes for axes in figure.axes if axes.get_xlabel() == "gamma")
    ours, printed = axes.lines[0], axes.lines[-1]
    np.testing.assert_allclose(ours.get_ydata().astype(float), [100 / 3, 200 / 3, 100])
    np.testing.assert_allclose(printed.get_ydata(), [90.7, 93.3, 95.7])


def test_one_seed_has_no_bar_and_a_run_without_the_evaluation_is_named(tmp_path):
    for gamma in (0.55, 0.75):
        write_run(tmp_path, run_of("graphhca", 1, algorithm__options__gamma=gamma), rng())
    unplayed = SyntheticRun(make_config("graphhca", 2, algorithm__options__gamma=0.75), updates=4)
    write_run(tmp_path, unplayed, rng())
    runs = load_runs(tmp_path)
    figure, left_out = sensitivity(runs, method_names(runs))
    assert left_out == ["graphhca seed 2 (not evaluated)"]
    (bars,) = figure.axes[0].containers[0].lines[2]
    assert not any(np.isfinite(segment).any() for segment in bars.get_segments())


def test_sensitivity_holds_all_of_an_algorithms_other_settings_fixed(tmp_path):
    for gamma, clip in ((0.55, 0.1), (0.75, 0.1), (0.95, 0.2)):
        keys = {"algorithm__options__gamma": gamma, "algorithm__clip": clip}
        write_run(tmp_path, run_of("graphhca", 1, **keys), rng())
    (gamma,) = (sweep for sweep in sweeps(load_runs(tmp_path)) if sweep.option == "gamma")
    assert set(gamma.runs) == {0.55, 0.75}


def test_scores_of_other_tasks_or_other_passages_are_refused(tmp_path):
    for seed in (1, 2):
        run = run_of("grpo", seed)
        run.data = {"retrieval": {"fingerprint": "abc", "urls": [f"http://host:{seed}"]}}
        write_run(tmp_path, run, rng())
    runs = load_runs(tmp_path)
    assert draw_figure("subtasks", runs, tmp_path / "figures", ["svg"]).left_out == []  # one index, served twice
    runs.evaluations.loc[0, "list_hash"] = "another"
    with pytest.raises(ComparisonError, match="evaluations of seen_games differ in list_hash"):
        draw_figure("subtasks", runs, tmp_path / "figures", ["svg"])
    run = run_of("grpo", 3)
    run.data = {"retrieval": {"fingerprint": "xyz"}}
    write_run(tmp_path, run, rng())
    with pytest.raises(ComparisonError, match=r"differ in retrieval\.fingerprint"):
        draw_figure("average_turns", load_runs(tmp_path), tmp_path / "figures", ["svg"])
