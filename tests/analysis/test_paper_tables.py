"""Tables from YAML: equal to the truth of synthetic runs, published rows apart, holes named, mixtures refused."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from analysis import products
from analysis.comparable import ComparisonError
from analysis.load import RunsError, load_runs
from analysis.published import FILE, published
from analysis.render import DASH
from analysis.spec import SpecError, read_spec, slug, table_names
from analysis.synthetic import Episode, SyntheticRun, fill_table, make_config, write_run

PAPER_TABLES = tuple(name for name in table_names() if name not in ("smoke", "state_keys"))


def rng(seed=1):
    return np.random.default_rng(seed)


def make(name, root, **options):
    return products.make_table(read_spec(name), root, **options)[0]


def key_of(spec, panel, column):
    return "".join(f"{slug(part)}/" for part in (panel, column.group) if part) + column.key


@pytest.fixture
def filled(tmp_path):
    """`filled(name)`: (spec, truth) with runs of every cell written to tmp_path."""

    def fill(name, seeds=None, **options):
        spec = read_spec(name)
        return spec, fill_table(tmp_path, spec, rng(), seeds or spec.seeds or (1, 2), tasks=4, updates=8, **options)

    return fill


# --- truth


@pytest.mark.parametrize("name", table_names())
def test_every_cell_equals_the_truth(tmp_path, filled, name):
    spec, truth = filled(name)
    table = make(name, tmp_path)
    columns = {column.key: column for column in spec.columns}
    assert truth
    for (panel, row, key), expected in truth.items():
        cell = table.cell(row, key_of(spec, panel, columns[key]))
        assert (cell.mean, cell.seeds) == (pytest.approx(expected.mean), expected.seeds), (panel, row, key)
        assert cell.std == (None if expected.std is None else pytest.approx(expected.std))
    assert table.holes == ()


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_every_published_number_of_the_table_is_in_it_and_only_in_published_rows(tmp_path, filled, name):
    spec, _ = filled(name, seeds=(1,))
    table = make(name, tmp_path)
    printed = sorted(
        c.mean for (row, k), c in table.cells.items() if row in table.published and c.mean and k[-2:] != "/n"
    )
    numbers = published(*spec.published) if spec.published else {}
    expected = sorted(number.value for number in numbers.values() if number.value)
    assert printed == expected
    bare = make(name, tmp_path, with_published=False)
    assert not bare.published
    ours = {key: replace(cell, best=False) for key, cell in table.cells.items() if key[0] not in table.published}
    assert ours == {key: replace(cell, best=False) for key, cell in bare.cells.items()}


def test_without_any_run_the_published_rows_stand_and_ours_are_dashes(tmp_path):
    table = make("graft_table1", tmp_path / "nowhere")
    text = table.render_terminal()
    assert "No run in" in text
    assert table.cell("GRAFT (published)", "qwen2.5_1.5b_instruct/alfworld/all").mean == 97.4
    assert table.cell("GRAFT", "qwen2.5_1.5b_instruct/alfworld/all").mean is None
    assert any("GRAFT in Qwen2.5-1.5B-Instruct, ALFWorld, seeds 1, 2, 3: no run" in hole for hole in table.holes)


def test_notes_of_published_numbers_are_footnotes(tmp_path):
    table = make("graft_table2", tmp_path)
    cell = table.cell("GRAFT (published)", "qwen2.5_3b_instruct/search_qa/bamboogle")
    letter = cell.mark.strip()
    note = next(note for note in table.notes if note.startswith(letter))
    assert cell.mean == 64.9
    assert "pooled it is about 30.4" in note
    text = table.render_terminal()
    assert f"64.9 {letter}" in text
    assert "swapped against the Search-R1 paper" in text
    assert "Not the mean of the printed columns" in text


def test_last_and_best_are_columns_of_their_own(tmp_path):
    run = SyntheticRun(make_config("grpo", 1, model__name="qwen2.5_1.5b"), updates=4)
    for when, won in (("before", 4), ("update-000002", 3), ("after", 1)):
        run.evaluations["seen_games", when] = [Episode("pick", i < won, float(i < won), 5) for i in range(4)]
    write_run(tmp_path, run, rng())
    table = make("graft_table1", tmp_path)
    assert table.cell("GRPO", "qwen2.5_1.5b_instruct/alfworld/all").mean == 25.0
    assert table.cell("GRPO", "qwen2.5_1.5b_instruct/alfworld/all_best").mean == 75.0  # not the 100 before training
    assert "no task of kind look" in table.cell("GRPO", "qwen2.5_1.5b_instruct/alfworld/look").reason


def test_best_is_bold_among_ours_and_among_published_apart(tmp_path, filled):
    filled("graphhca_table5")
    table = make("graphhca_table5", tmp_path)
    key = "qwen2.5_1.5b_instruct/alfworld/all"
    ours = {row: table.cell(row, key) for row in table.rows if row not in table.published}
    theirs = {row: table.cell(row, key) for row in table.published}
    assert [row for row, cell in theirs.items() if cell.best] == ["gamma=0.95 (published)"]
    best = max(ours, key=lambda row: ours[row].mean)
    assert ours[best].best
    assert sum(cell.best for cell in ours.values()) == 1


# --- holes


def state_of(root, name, seed, **settings):
    """Path of the one run with this algorithm and seed."""
    runs = load_runs(root)
    rows = runs.runs[(runs.runs["algorithm"] == name) & (runs.runs["seed"] == seed)]
    return next(
        path for run, path in zip(rows["run"], rows["path"], strict=True) if _meets(runs.configs[run], settings)
    )


def _meets(config, settings):
    return all(config["algorithm"]["options"].get(key) == value for key, value in settings.items())


@pytest.fixture
def with_holes(tmp_path, filled):
    """GraphHCA Table 5 with a missing cell, a crashed run, a running one, and a cell of a single seed."""
    spec = read_spec("graphhca_table5")
    fill_table(tmp_path, spec, rng(), (1, 2, 3), tasks=4, updates=8)
    shutil.rmtree(state_of(tmp_path, "graphhca", 1, gamma=0.55))
    for seed in (2, 3):
        shutil.rmtree(state_of(tmp_path, "graphhca", seed, gamma=0.55))
    shutil.rmtree(state_of(tmp_path, "graphhca", 3, gamma=0.75))
    folder = state_of(tmp_path, "graphhca", 2, gamma=0.75)
    config = load_runs(folder).configs[folder.rpartition("/")[2]]
    shutil.rmtree(folder)
    write_run(tmp_path, SyntheticRun(config, updates=8, state="failed"), rng())
    folder = state_of(tmp_path, "graphhca", 3, gamma=0.95)
    config = load_runs(folder).configs[folder.rpartition("/")[2]]
    shutil.rmtree(folder)
    write_run(tmp_path, SyntheticRun(config, updates=8, state="running"), rng())
    return tmp_path


def test_missing_crashed_running_and_single_seed_cells(with_holes):
    table = make("graphhca_table5", with_holes)
    key = "qwen2.5_1.5b_instruct/alfworld/all"
    assert table.cell("gamma=0.55", key).reason == "no run"
    single = table.cell("gamma=0.75", key)
    assert (single.seeds, single.std) == (1, None)
    assert table.cell("gamma=0.95", key).seeds == 2
    place = "in Qwen2.5-1.5B-Instruct, ALFWorld"
    assert table.holes == (
        f"Missing: gamma=0.55 {place}, seeds 1, 2, 3: no run.",
        f"Missing: gamma=0.75 {place}, seed 2: failed: OutOfMemoryError: out of memory (update 8).",
        f"Missing: gamma=0.75 {place}, seed 3: no run.",
        f"Missing: gamma=0.95 {place}, seed 3: running.",
    )
    text = table.render_terminal()
    absent = next(line for line in text.splitlines() if line.startswith("gamma=0.55 "))
    assert set(absent.split()[1:]) == {DASH}
    assert f"{DASH} gamma=0.55: no run" in text
    assert "Few seeds: some of our rows have no finished seed" in text
    row = next(line for line in table.markdown().splitlines() if line.startswith("| gamma=0.75 |"))
    assert row.endswith("| 1/3 |")


def test_a_grid_says_which_cells_there_should_be_and_which_runs_count(tmp_path, filled):
    _, _ = filled("graphhca_table5", seeds=(1, 2))
    runs = load_runs(tmp_path)
    cells = [
        {"id": run, "axes": {}, "method": "graphhca", "seed": int(seed), "row": None}
        for run, seed in zip(runs.runs["run"], runs.runs["seed"], strict=True)
        if seed == 1
    ]
    cells.append(
        {"id": "absent", "axes": {"algorithm.options.gamma": 0.75}, "method": "graphhca", "seed": 7, "row": None}
    )
    cells.append({"id": "gone", "axes": {}, "method": "graphhca", "seed": 8, "row": "gamma=0.95"})
    folder = tmp_path / "grids" / "graphhca_table5"
    folder.mkdir(parents=True)
    (folder / "cells.json").write_text(json.dumps({"schema": 1, "grid": "graphhca_table5", "cells": cells}))
    table = make("graphhca_table5", tmp_path)
    assert table.cell("gamma=0.75", "qwen2.5_1.5b_instruct/alfworld/all").seeds == 1
    place = "in Qwen2.5-1.5B-Instruct, ALFWorld"
    assert table.holes == (
        f"Missing: gamma=0.75 {place}, seed 7: no run.",
        f"Missing: gamma=0.95 {place}, seed 8: no run.",
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2, "cells": []}', '{"schema": 1, "cells": [{"id": "a"}]}'])
def test_a_broken_grid_is_an_error_in_one_line(tmp_path, text):
    folder = tmp_path / "grids" / "graphhca_table5"
    folder.mkdir(parents=True)
    (folder / "cells.json").write_text(text)
    with pytest.raises(RunsError, match=r"cells\.json: .*plan the grid again") as error:
        make("graphhca_table5", tmp_path)
    assert "\n" not in str(error.value)


# --- what can't stand together


def two_runs(root, **changed):
    """GRPO and GiGPO of GRAFT Table 1, the second one changed."""
    for algorithm, keys in (("grpo", {}), ("gigpo", changed)):
        run = SyntheticRun(make_config(algorithm, 1, model__name="qwen2.5_1.5b", **keys.get("config", {})), updates=4)
        run.commit, run.data = keys.get("commit", run.commit), keys.get("data", {"retrieval": {"index": "a"}})
        run.evaluations["seen_games", "after"] = [Episode("pick", True, 1.0, 5)]
        write_run(root, run, rng())


def test_other_protocols_are_refused(tmp_path):
    two_runs(tmp_path, config={"protocol__updates": 99})
    with pytest.raises(ComparisonError, match=r"differ in protocol\.updates"):
        make("graft_table1", tmp_path)


def test_other_retrieval_is_refused(tmp_path):
    two_runs(tmp_path, data={"retrieval": {"index": "b"}})
    with pytest.raises(ComparisonError, match=r"differ in retrieval\.index \((a and b|b and a)\)"):
        make("graft_table1", tmp_path)


def test_other_commits_are_marked(tmp_path):
    two_runs(tmp_path, commit="beef" * 10)
    table = make("graft_table1", tmp_path)
    assert [table.marks.get("GRPO"), table.marks.get("GiGPO")].count("*") == 1
    assert any(note.startswith("* Code differs") and "beefbeef" in note for note in table.notes)


def test_a_cell_with_two_runs_of_a_seed_is_refused_and_says_how_to_narrow_it(tmp_path):
    for gamma in (0.9, 0.95):
        config = make_config("gigpo", 1, model__name="qwen2.5_1.5b")
        config["algorithm"]["options"]["gamma"] = gamma
        write_run(tmp_path, SyntheticRun(config, updates=2), rng())
    with pytest.raises(ComparisonError, match=r"differ in algorithm\.options\.gamma; narrow it with --where"):
        make("graft_table1", tmp_path)
    narrowed = make("graft_table1", tmp_path, where={"algorithm.options.gamma": 0.9})
    assert any("GiGPO" in hole and "never evaluated" in hole for hole in narrowed.holes)


# --- texts


def test_latex_has_rules_bold_best_and_published_rows_in_italics(tmp_path, filled):
    filled("graft_table3")
    text = products.text_of(make("graft_table3", tmp_path), "latex")
    for piece in (
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"\textbf{",
        r"\textit{GRAFT$^{\dagger}$ (published)}$^{\ddagger}$",
    ):
        assert piece in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and " & " in line]
    assert {line.count(" & ") for line in rows} == {9, 4}
    assert "±" not in text
    assert DASH not in text


def test_markdown_csv_and_json_hold_the_same_numbers(tmp_path, filled):
    filled("graphhca_table4")
    table = make("graphhca_table4", tmp_path)
    key = "qwen2.5_1.5b_instruct/alfworld/all"
    rows = list(csv.DictReader(io.StringIO(products.text_of(table, "csv"))))
    record = {row["method"]: row for row in json.loads(products.text_of(table, "json"))["rows"]}
    for row in rows:
        cell = table.cell(row["method"], key)
        assert float(row[key]) == cell.mean == record[row["method"]]["cells"][key]["mean"]
        assert row["source"] == ("published" if record[row["method"]]["published"] else "ours")
    markdown = products.text_of(table, "markdown")
    assert "**" in markdown
    assert "| A_s only (published)‡ |" in markdown


# --- the YAML


def spec_file(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return str(path)


GOOD = """
title: Mine
lists: {alfworld: seen_games}
rows:
  - {label: GRPO, where: {algorithm: grpo}}
columns:
  - {header: won, metric: success, benchmark: alfworld}
  - {header: steps, metric: turns, benchmark: alfworld, better: lower, digits: 2}
  - {header: final, metric: log.success.last, scale: 100, benchmark: alfworld}
"""


def test_a_user_adds_a_table_without_code(tmp_path):
    run = SyntheticRun(make_config("grpo", 1), updates=3, success=[0.25, 0.5, 0.75])
    run.evaluations["seen_games", "after"] = [Episode("pick", True, 1.0, 4), Episode("look", False, 0.0, 8)]
    write_run(tmp_path, run, rng())
    table = products.make_table(read_spec(spec_file(tmp_path, GOOD)), tmp_path)[0]
    assert [table.cell("GRPO", f"alfworld/{key}").mean for key in ("won", "steps", "final")] == [50.0, 6.0, 75.0]
    assert table.holes == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: Mine", "titel: Mine", r"no key 'titel'; did you mean 'title'"),
        ("metric: turns", "metrik: turns", r"no key 'metrik'; did you mean 'metric'"),
        ("better: lower", "better: less", "better must be one of higher, lower, none; got 'less'"),
        ("{algorithm: grpo}", "7", "where of row 'GRPO' must be a mapping"),
        ("header: steps", "header: won", r"two columns are called 'alfworld\.won'"),
        ("rows:", "rows: []\nrow:", "no key 'row'"),
        (", where: {algorithm: grpo}", "", "needs `where`"),
        ("title: Mine", "title: [", "not YAML"),
        (
            "  - {header: won, metric: success, benchmark: alfworld}",
            "  - {use: nothing}",
            "no set of columns 'nothing'",
        ),
    ],
)
def test_a_wrong_yaml_is_an_error_in_one_line_that_names_file_and_key(tmp_path, old, new, message):
    path = spec_file(tmp_path, GOOD.replace(old, new))
    with pytest.raises(SpecError, match=message) as error:
        read_spec(path)
    assert "mine.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_tables_and_metrics_are_named_with_what_there_is(tmp_path):
    with pytest.raises(SpecError, match=r"no table 'graft_tabel1'; did you mean 'graft_table1'"):
        read_spec("graft_tabel1")
    write_run(tmp_path, SyntheticRun(make_config("grpo", 1), updates=1), rng())
    spec = read_spec(spec_file(tmp_path, GOOD.replace("metric: turns", "metric: tunrs")))
    with pytest.raises(SpecError, match="no metric 'tunrs'"):
        products.make_table(spec, tmp_path)


def test_the_published_file_is_whole():
    lines = FILE.read_text().splitlines()
    assert len(lines) == 618
    assert published("GRAFT", "nothing") == {}


def test_a_broken_published_file_names_its_line(tmp_path):
    path = tmp_path / "published.csv"
    path.write_text("paper,table,benchmark,model,method,metric,value,std,seeds,note\nA,t,b,m,x,all,high,,,\n")
    with pytest.raises(RunsError, match=r"published\.csv:2: could not convert"):
        published("A", "t", path)


# --- paired rows


def test_rows_are_paired_by_task(tmp_path):
    for algorithm, solved in (("grpo", 4), ("gigpo", 9)):
        for seed in (1, 2):
            run = SyntheticRun(make_config(algorithm, seed, model__name="qwen2.5_1.5b"), updates=2)
            run.evaluations["seen_games", "after"] = [Episode("pick", i < solved, 0.0, 5) for i in range(12)]
            write_run(tmp_path, run, rng())
    _, paired = products.make_table(read_spec("graft_table1"), tmp_path, paired="GRPO")
    prefix = "qwen2.5_1.5b_instruct/alfworld/"
    values = {key: paired.cell("GiGPO", prefix + key).mean for key in ("difference", "only_row", "only_reference", "n")}
    assert values == {"difference": pytest.approx(100 * 5 / 12), "only_row": 10, "only_reference": 0, "n": 2}
    assert paired.cell("GiGPO", prefix + "mcnemar").mean == pytest.approx(2 / 2**10)
    assert paired.cell("GiGPO", prefix + "improvement").mean == 1.0
    assert paired.cell("GRAFT", prefix + "p").reason == "no finished run"
    assert any(note.startswith("Few seeds: a comparison here has no seed") for note in paired.notes)
    with pytest.raises(SpecError, match="no row of ours is called 'PPO'"):
        products.make_table(read_spec("graft_table1"), tmp_path, paired="PPO")
