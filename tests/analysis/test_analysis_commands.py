"""`creditbench table` and `creditbench figure` as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from analysis.figure_catalog import figure_names
from analysis.load import load_runs
from analysis.spec import read_spec, table_names
from analysis.synthetic import SyntheticRun, fill_table, make_config, write_run
from sweeps.cli import main


@pytest.fixture
def out(tmp_path):
    """A whole GraphHCA Table 5."""
    spec = read_spec("graphhca_table5")
    fill_table(tmp_path, spec, np.random.default_rng(0), spec.seeds, tasks=3, updates=4)
    return tmp_path


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_names_are_listed(capsys):
    code, text, _ = run(capsys, "table")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == list(table_names())
    code, text, _ = run(capsys, "figure")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == list(figure_names())


def test_a_complete_table_ends_with_zero_and_an_incomplete_one_with_two(out, capsys):
    code, text, _ = run(capsys, "table", "graphhca_table5", "--out", out)
    assert code == 0
    assert "gamma=0.95 (published)‡" in text
    code, text, _ = run(capsys, "table", "graphhca_table6", "--out", out)
    assert code == 2
    assert "Missing: floor=1e-6" in text


def test_all_formats_are_saved_whole_and_equal_the_printed_ones(out, capsys, tmp_path):
    folder = tmp_path / "saved"
    assert run(capsys, "table", "graphhca_table5", "--out", out, "--save", folder)[0] == 0
    assert {path.suffix for path in folder.iterdir()} == {".txt", ".md", ".tex", ".csv", ".json"}
    for kind, suffix in (("text", "txt"), ("markdown", "md"), ("latex", "tex"), ("csv", "csv"), ("json", "json")):
        _, text, _ = run(capsys, "table", "graphhca_table5", "--out", out, "--format", kind)
        assert text == (folder / f"graphhca_table5.{suffix}").read_text()
    assert json.loads((folder / "graphhca_table5.json").read_text())["holes"] == []


def test_options_narrow_the_runs_choose_the_list_and_pair_the_rows(out, capsys):
    code, text, _ = run(
        capsys, "table", "graphhca_table5", "--out", out, "--where", "seed=2", "--list", "alfworld=seen_games",
        "--paired", "gamma=0.95", "--no-published", "--no-cache",
    )  # fmt: skip
    assert code == 2  # seeds 1 and 3 are left out
    assert "(published)" not in text
    assert "1/3" in text
    assert "against gamma=0.95" in text
    assert not (out / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["table", "graphhca_table7"], 2, "no table 'graphhca_table7'; did you mean 'graphhca_table"),
        (["table", "graphhca_table5", "--where", "seed"], 2, "'seed' must be KEY=VALUE"),
        (["table", "graphhca_table5", "--paired", "x"], 2, "no row of ours is called 'x'"),
        (["figure", "curves"], 2, "no figure 'curves'"),
        (["figure", "subtasks", "--format", "gif"], 2, "no format 'gif'"),
        (["figure", "subtasks", "--grid", "nope"], 2, "no grid 'nope'"),
        (["figure", "subtasks", "--list", "nope"], 1, "no evaluation list 'nope' in these runs (known: seen_games)"),
        (["figure", "subtasks", "--where", "seed=99"], 1, "no runs to draw"),
    ],
)
def test_wrong_use_is_one_line(out, capsys, arguments, code, message):
    given, _, error = run(capsys, *arguments, "--out", out)
    assert (given, error.count("\n")) == (code, 1)
    assert message in error


def test_figures_go_to_the_folder_and_name_what_is_missing(out, capsys):
    code, text, _ = run(capsys, "figure", "sensitivity", "--out", out)
    assert code == 0
    assert text.splitlines() == [str(out / "figures" / f"sensitivity.{suffix}") for suffix in ("png", "pdf", "svg")]
    write_run(
        out, SyntheticRun(make_config("grpo", 4, model__name="qwen2.5_1.5b"), state="failed"), np.random.default_rng(1)
    )
    code, text, _ = run(capsys, "figure", "subtasks", "--out", out, "--format", "svg", "--save", out / "f")
    assert code == 2
    assert "not drawn: subtasks: grpo seed 4 (failed)" in text


def test_a_grid_names_the_rows_and_what_has_no_run(out, capsys):
    runs = load_runs(out)
    rows = {"0.55": "low", "0.75": "middle", "0.95": "high"}
    cells = [
        {
            "id": row.run, "axes": {}, "method": row.algorithm, "seed": int(row.seed),
            "row": rows[str(json.loads(row.options)["gamma"])],
        }
        for row in runs.runs.itertuples()
    ]  # fmt: skip
    cells.append({"id": "none", "axes": {}, "method": "graphhca", "seed": 4, "row": "low"})
    (out / "grids" / "mine").mkdir(parents=True)
    (out / "grids" / "mine" / "cells.json").write_text(json.dumps({"schema": 1, "grid": "mine", "cells": cells}))
    code, text, _ = run(capsys, "figure", "subtasks", "--out", out, "--grid", "mine", "--format", "svg")
    assert code == 2
    assert "not drawn: low seed 4 (no run)" in text
    picture = (out / "figures" / "subtasks.svg").read_text()
    assert all(f"{name} (n=3)" in picture for name in rows.values())


def test_the_commands_need_no_torch(out):
    code = (
        "import sys; from sweeps.cli import main; "
        f"main(['table', 'graphhca_table5', '--out', {str(out)!r}, '--format', 'csv']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
