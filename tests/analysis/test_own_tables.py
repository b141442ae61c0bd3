"""Tables of a user's own: no cell shows the runs of another, no mean mixes settings, a wrong YAML is one clear line."""

from __future__ import annotations

import csv
import io
import json
from itertools import islice

import numpy as np
import pytest

from analysis import products
from analysis.comparable import ComparisonError
from analysis.published import Number
from analysis.render import Cell, Column, Panel, Table, letters
from analysis.spec import SpecError, read_spec
from analysis.synthetic import Episode, SyntheticRun, make_config, write_run
from analysis.tabulate import tabulate

TABLE = """
title: Mine
lists: {alfworld: seen_games}
rows:
  - {label: GRAFT, where: {algorithm: graft}}
columns:
  - {header: won, metric: success, benchmark: alfworld}
"""


def table_of(tmp_path, text, **options):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return products.make_table(read_spec(str(path)), tmp_path, **options)[0]


def graft(root, seed=1, won=1, state="done", measures=({}, {}, {}, {}), benchmark="alfworld", data=None, **keys):
    """A run with `won` of four episodes solved; `measures` are what its benchmark records of each."""
    run = SyntheticRun(make_config("graft", seed, benchmark, **keys), updates=2, state=state, data=data or {})
    when = "after" if state == "done" else "before"
    run.evaluations["seen_games", when] = [Episode("pick", i < won, 0.0, 5) for i in range(4)]
    folder = write_run(root, run, np.random.default_rng(0))
    path = folder / "evaluations" / "seen_games" / f"{when}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row | more) + "\n" for row, more in zip(rows, measures, strict=True)))
    return folder


def two_discounts(root):
    graft(root, won=1, algorithm__options__gamma=0.9)
    graft(root, won=3, algorithm__options__gamma=0.99)


# --- each cell its own runs


@pytest.mark.parametrize(("first", "second"), [("γ", "λ"), ("A+B", "A B"), ("discount", "Discount")])
def test_panels_whose_titles_are_alike_in_plain_letters_keep_their_own_numbers(tmp_path, first, second):
    two_discounts(tmp_path)
    panels = f"""panels:
  - {{title: "{first}", where: {{algorithm.options.gamma: 0.9}}}}
  - {{title: "{second}", where: {{algorithm.options.gamma: 0.99}}}}
"""
    table = table_of(tmp_path, TABLE + panels)
    shown = [table.cell("GRAFT", panel.columns[0].key).mean for panel in table.panels]
    assert shown == [25.0, 75.0]


def test_columns_of_other_runs_need_a_group_of_their_own(tmp_path):
    two_discounts(tmp_path)
    low = TABLE.replace("alfworld}\n", "alfworld, where: {algorithm.options.gamma: 0.9}}\n")
    high = "  - {header: high, metric: success, benchmark: alfworld, where: {algorithm.options.gamma: 0.99}}\n"
    with pytest.raises(SpecError, match=r"'won' and 'high' of group 'alfworld' differ in `benchmark` or `where`"):
        table_of(tmp_path, low + high)
    table = table_of(tmp_path, low + high.replace("high,", "high, group: High,", 1))
    assert table.cell("GRAFT", "alfworld/won").mean == 25.0
    assert table.cell("GRAFT", "high/high").mean == 75.0


def test_seeds_of_other_settings_are_no_cell(tmp_path):
    graft(tmp_path, 1, algorithm__options__gamma=0.9)
    graft(tmp_path, 2, algorithm__options__gamma=0.99)
    with pytest.raises(ComparisonError, match=r"of alfworld, seeds 1 and 2; they differ in algorithm\.options\.gamma"):
        table_of(tmp_path, TABLE)
    named = TABLE.replace("{algorithm: graft}", "[{algorithm.options.gamma: 0.9}, {algorithm.options.gamma: 0.99}]")
    assert table_of(tmp_path, named).cell("GRAFT", "alfworld/won").seeds == 2  # said to be one setting by two names


def test_where_narrows_the_runs_and_never_replaces_a_condition_of_the_table(tmp_path):
    graft(tmp_path, model__name="tiny")
    table = table_of(tmp_path, TABLE + "where: {model: qwen2.5_1.5b}\n", where={"model.name": "tiny"})
    assert table.cell("GRAFT", "alfworld/won").reason == "no run"


def test_where_leaves_out_planned_cells_of_other_seeds(tmp_path):
    run = graft(tmp_path, 2).name
    cells = [
        {"id": run if seed == 2 else f"absent-{seed}", "axes": {}, "method": "graft", "seed": seed, "row": "GRAFT"}
        for seed in (1, 2)
    ]
    (tmp_path / "grids" / "mine").mkdir(parents=True)
    (tmp_path / "grids" / "mine" / "cells.json").write_text(json.dumps({"schema": 1, "grid": "mine", "cells": cells}))
    assert len(table_of(tmp_path, TABLE).holes) == 1
    assert table_of(tmp_path, TABLE, where={"seed": 2}).holes == ()
    _, _, missing = products.figure_runs(tmp_path, {"seed": 2}, "mine")
    assert missing == []
    runs, _, missing = products.figure_runs(tmp_path, {"seed": 1}, "mine")
    assert (len(runs.runs), missing) == (0, ["GRAFT seed 1 (no run)"])


def test_a_list_of_a_benchmark_that_the_table_lacks_is_an_error(tmp_path):
    with pytest.raises(SpecError, match=r"--list alfwrld=\.\.\.: .*\(known: \*, alfworld\)"):
        table_of(tmp_path, TABLE, lists={"alfwrld": "unseen_games"})


def test_an_empty_runs_folder_is_a_table_without_runs(tmp_path):
    (tmp_path / "runs").mkdir()
    assert table_of(tmp_path, TABLE).notes[0].startswith("No run in")


def test_n_counts_the_seeds_that_are_missing_beside_one_more_than_asked_for(tmp_path):
    graft(tmp_path, 1)
    graft(tmp_path, 3)
    cell = table_of(tmp_path, TABLE + "seeds: [1, 2]\n").cell("GRAFT", "alfworld/n")
    assert (cell.mean, cell.mark) == (2.0, "/3")


# --- retrieval


def test_a_run_that_crashed_before_it_said_all_of_its_retrieval_is_a_hole_and_no_mixture(tmp_path):
    said = [{"retrieval": "abc"}] * 4
    graft(tmp_path, 1, measures=said, data={"retrieval": {"engine": "bm25", "fingerprint": "abc"}})
    graft(tmp_path, 2, measures=said, state="failed")
    table = table_of(tmp_path, TABLE)
    assert table.cell("GRAFT", "alfworld/won").seeds == 1
    assert any("seed 2: failed" in hole for hole in table.holes)


def test_other_passages_are_refused_by_the_episodes_alone(tmp_path):
    graft(tmp_path, 1, measures=[{}] * 4)
    graft(tmp_path, 2, measures=[{"retrieval": "abc"}] * 4)
    graft(tmp_path, 3, measures=[{"retrieval": "xyz"}] * 4, state="failed")
    with pytest.raises(ComparisonError, match=r"differ in episodes' retrieval \((abc and xyz|xyz and abc)\)"):
        table_of(tmp_path, TABLE)


# --- what a benchmark records itself


def test_a_measure_that_some_episodes_lack_is_no_mean_over_all(tmp_path):
    graft(tmp_path, measures=({"f1": 1.0}, {"f1": 0.5}, {}, {}))
    text = TABLE.replace("metric: success", "metric: episode.f1")
    assert table_of(tmp_path, text).cell("GRAFT", "alfworld/won").reason == (
        "episode.f1 was not recorded of every episode on seen_games"
    )


def test_yes_or_no_is_counted_also_beside_runs_of_a_benchmark_without_it(tmp_path):
    flags = [{"answered": True}, {"answered": True}, {"answered": True}, {"answered": False}]
    graft(tmp_path, measures=flags)
    graft(tmp_path, benchmark="webshop")
    text = TABLE.replace("metric: success", "metric: episode.answered, scale: 100")
    assert table_of(tmp_path, text).cell("GRAFT", "alfworld/won").mean == 75.0


# --- the YAML


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: Mine", "title: Mine\nseeds: [1, a]", r"seeds must be distinct whole numbers; got \[1, 'a'\]"),
        ("title: Mine", "title: Mine\nseeds: [1, 1]", "seeds must be distinct whole numbers"),
        ("metric: success", "metric: success, scale: x", "scale of column 'won' must be a number; got 'x'"),
        ("metric: success", "metric: success, scale: .nan", "scale of column 'won' must be a number"),
        ("metric: success", "metric: success, digits: -1", "digits of column 'won' must be a whole number or null"),
        ("header: won", "header: n", "the column of seeds has key 'n'"),
        ("label: GRAFT", "label: GRAFT (published)", "names of published rows end so"),
    ],
)
def test_what_a_table_cannot_show_is_an_error_in_one_line(tmp_path, old, new, message):
    with pytest.raises(SpecError, match=message) as error:
        table_of(tmp_path, TABLE.replace(old, new))
    assert "mine.yaml: " in str(error.value)
    assert "\n" not in str(error.value)


# --- footnotes and texts


def test_letters_go_on_after_z():
    assert list(islice(letters(), 28))[-3:] == ["z", "aa", "ab"]


def test_each_of_many_published_notes_has_a_letter_of_its_own(tmp_path):
    kinds = [f"kind{number}" for number in range(30)]
    columns = "".join(
        f"  - {{header: {kind}, metric: success, benchmark: alfworld, published: {kind}}}\n" for kind in kinds
    )
    (tmp_path / "mine.yaml").write_text(
        f"title: Mine\npublished: {{paper: P, table: t}}\npanels: [{{title: M, published: M}}]\n"
        f"rows: [{{label: GRPO, published: GRPO}}]\ncolumns:\n{columns}"
    )
    numbers = {("alfworld", "M", "GRPO", kind): Number(1.0, None, None, f"about {kind}") for kind in kinds}
    table = tabulate(read_spec(str(tmp_path / "mine.yaml")), products.no_runs(), None, numbers)
    for kind in kinds:
        mark = table.cell("GRPO (published)", f"m/alfworld/{kind}").mark.strip()
        assert [note for note in table.notes if note.startswith(f"{mark} ")] == [f"{mark} About {kind}."]


def test_csv_has_no_zero_where_a_paper_does_not_say_how_many_seeds(tmp_path):
    table = products.make_table(read_spec("graft_table1"), tmp_path)[0]
    row = next(row for row in csv.DictReader(io.StringIO(table.csv())) if row["method"] == "ReAct (published)")
    key = "qwen2.5_1.5b_instruct/alfworld/all"
    assert (row[key], row[f"{key}.std"], row[f"{key}.seeds"]) == ("12.8", "", "")


def test_a_latex_row_does_not_begin_with_a_bracket():
    column = Column("a", "a", "%")
    cells = {("[x]", "a"): Cell(1.0), ("y", "a"): Cell(2.0)}
    text = products.text_of(Table("T", (Panel("", (column,), ("y", "[x]")),), cells), "latex")
    assert "{[}x]" in text
    assert not any(line.startswith("[") for line in text.splitlines())
