"""The comparison table: known truths, holes, refusals and its four texts."""

from __future__ import annotations

import csv
import io
import json

import pytest

from analysis.comparable import method_names, method_order
from analysis.load import load_runs
from analysis.render import DASH
from analysis.tables import Cell, ComparisonError, comparison


def table_of(tmp_path, **options):
    return comparison(load_runs(tmp_path), **options)


# --- numbers


def test_success_change_turns_and_counts(tmp_path, finished_run):
    finished_run("initial", 1, solved=3)
    finished_run("grpo", 1, solved=6)
    finished_run("grpo", 2, solved=9)
    table = table_of(tmp_path)
    success = table.cell("grpo", "training_games.success")
    assert (success.mean, success.seeds, success.episodes) == (62.5, 2, 24)
    assert success.std == pytest.approx(12.5 * 2**0.5)  # 50 and 75
    assert table.cell("initial", "training_games.success") == Cell(25.0, None, 1, 12)
    assert table.cell("grpo", "training_games.change").mean == 37.5
    assert table.cell("grpo", "training_games.turns").mean == 6.5  # steps 1 to 12
    assert table.cell("grpo", "training_games.episodes").mean == 24
    assert table.cell("grpo", "training_games.seeds").mean == 2


def test_kinds_are_scored_apart_and_in_table_order(tmp_path, finished_run):
    finished_run("grpo", 1, solved=5)  # games 0 (pick) and 1 (look) twice, game 2 (clean) once
    table = table_of(tmp_path)
    kinds = ["pick", "look", "clean", "heat", "cool", "pick2"]
    assert [table.cell("grpo", f"training_games.kind.{kind}").mean for kind in kinds] == [100, 100, 50, 0, 0, 0]
    assert table.cell("grpo", "training_games.kind.pick").episodes == 2
    keys = [column.header for column in table.panels[0].columns]
    assert keys == ["success", "change", *kinds, "turns", "episodes", "seeds"]


def test_lists_are_reported_apart(tmp_path, new_run):
    run = new_run("grpo").attempt([0.5]).done()
    run.evaluation([True] * 12, "training_games").evaluation([False] * 12, "unseen_games")
    table = table_of(tmp_path)
    assert [panel.title[0] for panel in table.panels] == ["A", "B", "C"]
    assert "games never trained on" in table.panels[1].title
    assert table.cell("grpo", "training_games.success").mean == 100
    assert table.cell("grpo", "unseen_games.success").mean == 0  # a measured zero is a zero
    assert [panel.title[:1] for panel in table_of(tmp_path, lists=["unseen_games"]).panels] == ["A", "B"]


def test_cost_is_mean_seconds_an_update(tmp_path, finished_run):
    finished_run("grpo", 1)
    table = table_of(tmp_path)
    stages = {name: table.cell("grpo", f"cost.timing/{name}").mean for name in ("rollout", "generation", "all")}
    assert stages == {"rollout": 1.0, "generation": 0.75, "all": pytest.approx(3.52)}
    assert table.cell("grpo", "cost.updates").mean == 4
    assert table.cell("grpo", "cost.episodes").mean == 256
    assert "initial" not in table.panels[-1].rows


def test_cost_without_timing_says_so(tmp_path, new_run):
    run = new_run("grpo").attempt(tail='{"update": 1, "episodes": 8, "success": 0.5}\n').done()
    run.evaluation([True, False] * 6)
    cell = table_of(tmp_path).cell("grpo", "cost.timing/rollout")
    assert cell == Cell(None, reason="timing/rollout was not logged")


def test_a_done_run_without_metrics_says_so(tmp_path, new_run):
    new_run("grpo").attempt().evaluation([True, False] * 6).done()
    assert table_of(tmp_path).cell("grpo", "cost.updates").reason == "no metrics"


# --- the initial policy


def test_initial_comes_first_then_the_registry_then_the_rest():
    names = ["zeta", "graft", "grpo", "graft (gae_lambda=0.5)", "initial", "alpha", "gigpo"]
    expected = ("initial", "grpo", "gigpo", "graft", "graft (gae_lambda=0.5)", "alpha", "zeta")
    assert method_order(names) == expected


def test_without_initial_runs_the_evaluation_before_training_stands_in(tmp_path, finished_run):
    for algorithm in ("grpo", "gigpo"):
        finished_run(algorithm, 1, solved=6).evaluation([True] * 3 + [False] * 9, when="before")
    table = table_of(tmp_path)
    assert table.cell("initial", "training_games.success") == Cell(25.0, None, 1, 12)
    assert table.cell("gigpo", "training_games.change").mean == 25.0
    assert table.cell("initial", "unseen_games.success").reason == "no evaluation of unseen_games by the initial policy"
    assert table.cell("grpo", "unseen_games.change").mean is None
    assert any("own evaluation before training" in note for note in table.notes)


def test_equal_seeds_of_the_initial_policy_are_one_sample(tmp_path, finished_run):
    for seed in (1, 2):
        finished_run("initial", seed, solved=3)
    finished_run("initial", 3, solved=4)
    finished_run("grpo", 1)
    table = table_of(tmp_path)
    assert table.cell("initial", "training_games.success").seeds == 2
    assert any("count once" in note for note in table.notes)


def test_equal_seeds_of_a_trained_method_stay_two(tmp_path, finished_run):
    finished_run("grpo", 1)
    finished_run("grpo", 2)
    cell = table_of(tmp_path).cell("grpo", "training_games.success")
    assert (cell.std, cell.seeds) == (0.0, 2)


# --- holes


def test_two_by_two_with_a_missing_cell_a_crash_and_a_single_seed(tmp_path, finished_run, new_run):
    finished_run("initial", 1, solved=3)
    finished_run("grpo", 1, solved=6)  # seed 2 has no run
    new_run("gigpo", 1).attempt([0.5]).failed("boom", update=2)
    new_run("gigpo", 2)
    table = table_of(tmp_path)
    text = table.render_terminal()
    single = table.cell("grpo", "training_games.success")
    assert (single.mean, single.std, single.seeds) == (50.0, None, 1)
    assert table.cell("gigpo", "training_games.success") == Cell(None, reason="no finished run")
    assert "0.0 ±0.0" not in text
    assert "Not counted: grpo, seed 2: no run." in table.notes
    assert "Not counted: gigpo, seed 1: failed: RuntimeError: boom (update 2)." in table.notes
    assert "Not counted: gigpo, seed 2: new." in table.notes
    row = next(line for line in text.splitlines() if line.startswith("gigpo"))
    assert set(row.split()[1:]) == {DASH}
    assert f"{DASH} gigpo: no finished run" in text


def test_asked_for_methods_and_seeds_are_missing_and_not_left_out(tmp_path, finished_run):
    finished_run("grpo", 1)
    table = table_of(tmp_path, methods=["initial", "grpo", "graft"], seeds=[1, 2])
    assert table.rows == ("initial", "grpo", "graft")
    missing = [note for note in table.notes if note.startswith("Not counted")]
    assert missing == [f"Not counted: {cell}: no run." for cell in ("grpo, seed 2", "graft, seed 1", "graft, seed 2")]


def test_unfinished_runs_give_no_value_even_where_they_have_one(tmp_path, finished_run, new_run):
    finished_run("grpo", 1, solved=6)
    new_run("grpo", 2).attempt([0.5]).evaluation([True] * 12).failed()
    assert table_of(tmp_path).cell("grpo", "training_games.success").mean == 50.0


def test_a_missing_evaluation_of_a_done_run_is_named(tmp_path, finished_run, new_run):
    finished_run("grpo", 1)
    new_run("grpo", 2).attempt([0.5]).evaluation([True] * 12).done()
    new_run("gigpo", 1).attempt([0.5]).evaluation([True] * 12).done()
    table = table_of(tmp_path)
    assert "Not counted on unseen_games: grpo, seed 2: no such evaluation after training." in table.notes
    assert table.cell("grpo", "unseen_games.seeds").mean == 1
    assert table.cell("gigpo", "unseen_games.success").reason == "no evaluation of unseen_games after training"


def test_a_table_of_nothing_but_unfinished_runs_is_written(tmp_path, new_run):
    new_run("grpo", 1)
    table = table_of(tmp_path, lists=["training_games"])
    assert table.cell("grpo", "training_games.success").mean is None
    assert "never evaluated" in table.render_terminal()
    assert json.loads(table.json())


@pytest.mark.parametrize(("seeds", "warned"), [(3, True), (4, False)])
def test_few_seeds_rank_nothing_and_the_table_says_so(tmp_path, finished_run, seeds, warned):
    for seed in range(seeds):
        finished_run("grpo", seed)
    assert any("No ranking" in note for note in table_of(tmp_path).notes) == warned


# --- refusals


@pytest.mark.parametrize(
    ("group", "values", "message"),
    [
        ("protocol", {"updates": 12}, r"differ in protocol\.updates \((4 and 12|12 and 4)\)"),
        ("protocol", {"name": "paper"}, r"differ in protocol\.name"),
        ("model", {"decoding": "free"}, r"differ in model\.decoding"),
        ("benchmark", {"options": {"data": "official"}}, r"differ in benchmark\.options\.data"),
    ],
)
def test_runs_of_different_settings_are_refused(tmp_path, finished_run, group, values, message):
    finished_run("grpo", 1)
    finished_run("gigpo", 1, **{group: values})
    with pytest.raises(ComparisonError, match=message) as error:
        table_of(tmp_path)
    assert "\n" not in str(error.value)
    assert "gigpo-1" in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("label", "synth-v2"), ("list_hash", "beef"), ("decoding", "free"), ("temperature", 0.4), ("horizon", 50)],
)
def test_evaluations_made_another_way_are_refused(tmp_path, finished_run, new_run, key, value):
    finished_run("grpo", 1)
    new_run("gigpo", 1).attempt([0.5]).evaluation([True] * 12, **{key: value}).done()
    with pytest.raises(ComparisonError, match=f"evaluations of training_games differ in {key}: .*{value}"):
        table_of(tmp_path)


def test_resources_may_differ(tmp_path, finished_run):
    finished_run("grpo", 1)
    finished_run("gigpo", 1, resources={"threads": 8})
    assert table_of(tmp_path).rows == ("initial", "grpo", "gigpo")


def test_two_runs_of_one_method_and_seed_are_refused(tmp_path, finished_run):
    folder = finished_run("grpo", 1).path
    folder.rename(folder.with_name("other"))
    finished_run("grpo", 1)
    with pytest.raises(ComparisonError, match="runs grpo-1 and other are both grpo, seed 1"):
        table_of(tmp_path)


def test_variants_of_one_algorithm_get_rows_named_by_what_differs(tmp_path, finished_run):
    finished_run("graft", 1, algorithm={"options": {"gae_lambda": 0.95, "gamma": 0.99}}, solved=6)
    finished_run("graft", 2, algorithm={"options": {"gae_lambda": 0.0, "gamma": 0.99}}, solved=3)
    runs = load_runs(tmp_path)
    assert method_names(runs).tolist() == ["graft (gae_lambda=0.95)", "graft (gae_lambda=0.0)"]
    assert comparison(runs).cell("graft (gae_lambda=0.0)", "training_games.success").mean == 25.0


# --- code versions


def test_differing_commits_are_marked(tmp_path, finished_run, new_run):
    finished_run("grpo", 1)
    finished_run("grpo", 2)
    new_run("graft", 1).attempt([0.5], commit="beef").evaluation([True] * 12).done()
    table = table_of(tmp_path)
    assert table.marks == {"graft": "*"}
    assert any(note.startswith("* Code differs") and "graft, seed 1 at beef" in note for note in table.notes)
    assert "\ngraft* " in table.render_terminal()


def test_uncommitted_changes_are_another_code(tmp_path, finished_run, new_run):
    finished_run("grpo", 1)
    finished_run("grpo", 2)
    new_run("graft", 1).attempt([0.5], dirty="0123456789").evaluation([True] * 12).done()
    table = table_of(tmp_path)
    assert table.marks == {"graft": "*"}
    assert any("graft, seed 1 at c0ffee with uncommitted changes 012345" in note for note in table.notes)


def test_one_commit_marks_nothing(tmp_path, finished_run):
    finished_run("grpo", 1)
    table = table_of(tmp_path)
    assert not table.marks
    assert "*" not in table.render_terminal()


# --- texts


@pytest.fixture
def full_table(tmp_path, finished_run, new_run):
    finished_run("initial", 1, solved=3)
    for algorithm, solved in (("grpo", 12), ("graphgpo", 9), ("graphhca", 6)):
        finished_run(algorithm, 1, solved=solved)
        finished_run(algorithm, 2, solved=0)
    new_run("graft", 1).attempt().failed("a | b")
    return table_of(tmp_path)


@pytest.mark.parametrize("width", [40, 60, 100, 120])
def test_terminal_text_keeps_to_its_width_and_loses_no_column(full_table, width):
    text = full_table.render_terminal(width)
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    assert all(column.header in words for panel in full_table.panels for column in panel.columns)


def test_panels_fit_a_hundred_columns_in_one_piece(full_table):
    text = full_table.render_terminal(100)
    assert sum(line.startswith("method") for line in text.splitlines()) == len(full_table.panels)


def test_markdown_rows_have_equal_cells(full_table):
    lines = [line for line in full_table.markdown().splitlines() if line.startswith("|")]
    panels = [len(panel.columns) + 1 for panel in full_table.panels]
    counts = [line.replace("\\|", "").count("|") - 1 for line in lines]
    assert sorted(set(counts)) == sorted(set(panels))
    assert "a \\| b" in full_table.markdown()


def test_csv_holds_numbers_and_empty_fields(full_table):
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(full_table.csv()))}
    assert list(rows) == list(full_table.rows)
    assert float(rows["grpo"]["training_games.success"]) == 50.0
    assert float(rows["grpo"]["training_games.success.std"]) == pytest.approx(50 * 2**0.5)
    assert rows["initial"]["training_games.success.std"] == ""
    assert rows["graft"]["training_games.success"] == ""
    assert rows["graft"]["missing"] == "no finished run"


def test_json_is_strict_and_complete(full_table):
    def refuse(constant):
        raise AssertionError(constant)

    record = json.loads(full_table.json(), parse_constant=refuse)
    rows = {row["method"]: row["cells"] for row in record["rows"]}
    assert rows["graft"]["training_games.success"]["mean"] is None
    assert rows["grpo"]["training_games.success"]["seeds"] == 2
    assert set(rows["grpo"]) == {column["key"] for panel in record["panels"] for column in panel["columns"]}


def test_texts_are_pure(tmp_path, full_table):
    again = table_of(tmp_path)
    assert again.json() == full_table.json()
    assert again.render_terminal() == full_table.render_terminal()
