"""Grid files and their expansion; resources by rule; the plan."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import config as configs
from sweeps import grid, jobspec, plan
from sweeps.composer import Composer
from sweeps.schema import ConfigError

SMALL = """
about: small
table: null
common: {protocol.updates: 3}
axes:
  algorithm: [grpo, graft]
  seed: [1, 2]
"""


def parsed(text: str = SMALL, **changes):
    return grid.parse("mine", {**yaml.safe_load(text), **changes})


def places(chosen: grid.Grid):
    return [tuple(cell.axes.values()) for cell in chosen.cells()]


# --- expansion


def test_one_seed_of_everything_before_the_next():
    assert places(parsed()) == [("grpo", 1), ("graft", 1), ("grpo", 2), ("graft", 2)]


def test_exclude_then_include():
    chosen = parsed(exclude=[{"algorithm": "gr*", "seed": 2}], include=[{"algorithm": "gigpo", "seed": [2, 3]}])
    assert places(chosen) == [("grpo", 1), ("graft", 1), ("gigpo", 2), ("gigpo", 3)]


def test_an_included_cell_that_is_there_already_is_one_cell():
    assert len(parsed(include=[{"algorithm": "grpo"}]).cells()) == 4


def test_later_values_win_common_axes_rules_overrides():
    rules = [{"match": {"algorithm": "graft"}, "values": {"protocol.updates": 5, "protocol.horizon": 7}}]
    chosen = parsed(set=rules)
    values = {tuple(cell.axes.values()): cell.values for cell in chosen.cells({"protocol.horizon": 9})}
    assert values["grpo", 1] == {"algorithm": "grpo", "seed": 1, "protocol.updates": 3, "protocol.horizon": 9}
    assert values["graft", 1]["protocol.updates"] == 5
    assert values["graft", 1]["protocol.horizon"] == 9


def test_labels_of_a_group_choose_it_and_labels_of_rows_do_not():
    axes = {
        "benchmark": {"alfworld": {"protocol": "paper_alfworld"}},
        "row": {"full": {"algorithm": "graft"}, "none": {"algorithm": "grpo"}},
    }
    planned = plan.make(parsed(axes=axes))
    first, second = (one.cell for one in planned.cells)
    assert first.record()["axes"] == {
        "benchmark": "alfworld", "protocol": "paper_alfworld", "algorithm": "graft",
    }  # fmt: skip
    assert (first.row, second.row, second.method) == ("full", "none", "grpo")


def test_resources_are_those_of_the_first_rule_that_matches():
    rules = [{"match": {"algorithm": "graft"}, "gpus": 2, "launch": "ddp"}, {"time": "2:00:00"}]
    planned = plan.make(parsed(resources=rules, common={"resources": "gpu"}), job=["partition=big"])
    jobs = {one.cell.method: one.job for one in planned.cells}
    assert (jobs["graft"].gpus, jobs["graft"].time, jobs["graft"].partition) == (2, 60, "big")
    assert (jobs["grpo"].gpus, jobs["grpo"].time, jobs["grpo"].partition) == (0, 120, "big")


def test_a_cluster_profile_lies_below_the_grids_rules(tmp_path):
    (tmp_path / "site.yaml").write_text("account: me\ntime: 5\nlead: 10\n")
    planned = plan.make(parsed(resources=[{"time": 7}]), cluster=str(tmp_path / "site.yaml"))
    assert {(one.job.account, one.job.time) for one in planned.cells} == {("me", 7)}


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"axis": {}}, "did you mean 'axes'"),
        ({"axes": {}}, "at least one axis"),
        ({"axes": {"algorithm": "grpo"}}, "must be a list"),
        ({"axes": {"seed": [1, 1]}}, "twice"),
        ({"axes": {"row": ["a"]}}, "must map each label"),
        ({"exclude": [{"algoritm": "grpo"}]}, "did you mean 'algorithm'"),
        ({"set": [{"match": {}}]}, "match and values"),
        ({"resources": {"gpus": 1}}, "list of mappings"),
        ({"table": 3}, "table must be a name"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_the_place(changes, part):
    with pytest.raises(ConfigError, match=part) as caught:
        parsed(**changes).cells()
    assert "\n" not in str(caught.value)
    assert "grid mine" in str(caught.value)


def test_numbers_are_read_as_hydra_reads_them(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("axes: {protocol.learning_rate: [1e-6, 5E-4, 0.01, 1.5e+2, -2e3, 3], model: [1e, e5, 1e5x]}\n")
    axes = grid.read(str(path)).axes
    assert list(axes["protocol.learning_rate"]) == [1e-6, 5e-4, 0.01, 150.0, -2000.0, 3]
    assert list(axes["model"]) == ["1e", "e5", "1e5x"]
    path.write_bytes(b"axes: {a: [\xff]}")
    with pytest.raises(ConfigError, match="is not YAML"):
        grid.read(str(path))


def test_a_wrong_value_names_the_cell():
    with pytest.raises(ConfigError, match=r"cell algorithm=graft, seed=1: unknown key 'protocol.update'"):
        plan.make(parsed(set=[{"match": {"algorithm": "graft"}, "values": {"protocol.update": 1}}]))


def test_an_override_of_an_axis_is_refused():
    with pytest.raises(ConfigError, match="--filter seed"):
        plan.make(parsed(), ["seed=3"])


def test_unknown_grids_name_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'smoke'"):
        grid.read("smok")


# --- identity


def test_ids_are_those_of_single_runs_and_the_job_is_not_part_of_them():
    one = plan.make(parsed(), job=["time=5", "lead=10"]).cells[1]
    single = configs.compose(["algorithm=graft", "seed=1", "protocol.updates=3"])
    assert one.cell.id == configs.identity(single)
    assert one.config == single


@settings(deadline=None, max_examples=10)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "algorithm": st.sampled_from(["grpo", "graft", "graphhca"]),
            "model": st.sampled_from(["tiny", "smollm2", "qwen2.5_7b"]),
            "protocol": st.sampled_from(["quick", "paper_alfworld"]),
            "seed": st.integers(0, 3),
            "protocol.horizon": st.integers(1, 9),
            "benchmark.options.data": st.sampled_from(["official", "synth"]),
            "protocol.evaluation.every": st.integers(0, 2),
            "protocol.learning_rate": st.sampled_from([1e-3, 1.0]),
        },
    )
)
def test_many_at_once_is_one_by_one(values):
    one_by_one = configs.compose([f"{key}={value}" for key, value in values.items()])
    composer = Composer()
    composer.compose({**values, "seed": 9, "protocol.updates": 7})  # what it keeps must not leak
    assert composer.compose(values) == one_by_one


def test_one_composer_keeps_choices_apart():
    composer = Composer()
    for algorithm in ("grpo", "graft", "grpo"):
        for resources in ("local", "gpu"):
            texts = [f"algorithm={algorithm}", f"resources={resources}"]
            made = composer.compose({"algorithm": algorithm, "resources": resources})
            assert made == configs.compose(texts)
            assert list(made) == list(configs.compose(texts))
    changed = composer.compose({"algorithm": "graft", "algorithm.options.gamma": 0.5})
    assert changed["algorithm"]["options"]["gamma"] == 0.5
    assert composer.compose({"algorithm": "graft"}) == configs.compose(["algorithm=graft"])


def test_values_that_interpolations_read_change_what_they_give():
    composer = Composer()
    assert composer.compose({"model.path": "x", "model": "hub"})["model"]["path"] == "x"
    changed = composer.compose({"model": "smollm2", "protocol": "quick"})
    assert changed["protocol"] == configs.compose(["model=smollm2"])["protocol"]
    assert changed["protocol"] != composer.compose({})["protocol"]


def test_taking_out_a_key():
    lists = Composer().compose({"~protocol.evaluation.lists.unseen_games": None})["protocol"]["evaluation"]["lists"]
    assert lists == configs.compose(["~protocol.evaluation.lists.unseen_games"])["protocol"]["evaluation"]["lists"]


# --- what ships

PUBLISHED = {
    "graft_table1": 96, "graft_table2": 36, "graft_table3": 30, "graft_table4": 20, "graft_table5": 12,
    "graphhca_table3": 15, "graphhca_table4": 15, "graphhca_table5": 9, "graphhca_table6": 9, "g2po_figure3": 24,
    "state_keys": 72, "smoke": 12,
}  # fmt: skip


def test_all_grids_are_known_here():
    assert set(grid.names()) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shipped_grid_plans(name):
    chosen = grid.read(name)
    planned = plan.make(chosen)
    assert len(planned.cells) == PUBLISHED[name]
    assert chosen.table == name
    assert chosen.about
    text = plan.describe(planned, dict.fromkeys(planned.runs, "missing"), [])
    assert ("GPU-hours" in text) is (name not in ("smoke", "state_keys"))


def test_the_papers_rows_share_a_run_where_they_mean_the_same():
    planned = plan.make(grid.read("graft_table4"))
    rows = {}
    for one in planned.cells:
        rows.setdefault(one.cell.id, []).append((one.cell.benchmark, one.cell.row))
    assert [("alfworld", "gamma=0.99"), ("alfworld", "lambda=0.95")] in rows.values()
    assert [("webshop", "gamma=0.99"), ("webshop", "lambda=0.8")] in rows.values()


def test_the_dagger_has_neither_graph_gae_nor_grpo_c():
    cells = {one.cell.row: one.config["algorithm"] for one in plan.make(grid.read("graft_table3")).cells}
    assert cells["GRAFT†"]["objective"] == cells["w/ Graph GAE"]["objective"] == "ppo"
    assert cells["GRAFT†"]["options"]["gae_lambda"] == cells["w/ GRPO-C objective"]["options"]["gae_lambda"] == 0
    assert cells["w/o adv normalization"]["options"]["normalize"] is False


# --- jobs


@pytest.mark.parametrize(
    ("value", "expected"),
    [(90, 90), ("90", 90), ("1:30:00", 90), ("90:00", 90), ("0:00:01", 1), ("1-01:00:00", 1500), ("2:30", 3)],
)
def test_time_limits_as_sbatch_takes_them(value, expected):
    assert jobspec.minutes("time", value) == expected


@pytest.mark.parametrize(
    ("layer", "part"),
    [
        ({"gpu": 1}, "did you mean 'gpus'"),
        ({"time": 86400}, "in quotes"),
        ({"time": "soon"}, "must be minutes"),
        ({"mem": "1G", "mem_per_cpu": "1G"}, "exclude each other"),
        ({"gpus": 1, "gres": "gpu:1"}, "exclude each other"),
        ({"nodes": 2}, "need launch"),
        ({"pack": 2, "launch": "ddp", "processes": 2}, "pack is for"),
        ({"time": 1, "lead": 60}, "must be shorter"),
        ({"extra": {"array": "0-3"}}, "is set by creditbench"),
        ({"extra": {"mem": "3G"}}, "is set by creditbench"),
        ({"launch": "mpi"}, "launch must be one of"),
        ({"partition": "a\nb"}, "one line"),
    ],
)
def test_wrong_resources_are_one_line(layer, part):
    with pytest.raises(ConfigError, match=part):
        jobspec.make(layer)


def test_the_warning_fits_into_a_short_limit():
    assert [jobspec.make({"time": time}).lead for time in (1, 10, 60)] == [12, 120, 300]
    assert jobspec.make({"time": 10, "lead": 30}).lead == 30


def test_only_what_is_set_is_said_to_sbatch():
    spec = jobspec.make({"mem": "4G", "gpus": 2, "launch": "ddp", "extra": {"mail_type": "FAIL"}})
    assert jobspec.sbatch_flags(spec) == {
        "time": 60, "nodes": 1, "ntasks-per-node": 1, "cpus-per-task": 1, "mem": "4G", "gpus-per-node": 2,
        "mail-type": "FAIL",
    }  # fmt: skip
    assert spec.world == 2


def test_hours_count_nodes_gpus_and_packing():
    assert jobspec.make({"time": 120, "gpus": 4, "nodes": 2, "launch": "fsdp"}).gpu_hours == 16
    assert jobspec.make({"time": 60, "gres": "gpu:a100:3"}).gpu_hours == 3
    planned = plan.make(parsed(resources=[{"pack": 2, "cpus": 4}]))
    assert plan.hours(planned.cells) == "8.0 CPU-hours"


# --- records and filters


def test_the_record_comes_back(tmp_path):
    planned = plan.make(grid.read("graft_table3"))
    plan.write_record(tmp_path, planned)
    record = plan.read_record(tmp_path, "graft_table3")
    assert record.cells == [one.cell for one in planned.cells]
    raw = json.loads((tmp_path / "grids" / "graft_table3" / "cells.json").read_text())
    assert raw["schema"] == 1
    assert {"id", "axes", "method", "seed", "row"} <= set(raw["cells"][0])
    assert plan.read_record(tmp_path, "other") is None


def test_filters():
    cells = [one.cell for one in plan.make(grid.read("graft_table1")).cells]

    def chosen(*texts):
        return sum(plan.selected(cell, plan.parse_filters(texts), "done") for cell in cells)

    assert chosen("model=*7b", "seed=1,2") == 32
    assert chosen("method=graft", "benchmark=webshop") == 6
    assert chosen("state=done") == 96
    with pytest.raises(ConfigError, match="did you mean 'method'"):
        chosen("metod=graft")
    with pytest.raises(ConfigError, match="axis=value"):
        chosen("graft")


def test_composing_is_linear_and_quick():
    """Two thousand cells take a fraction of what composing them one by one would: a bound on work, not on the clock."""
    composer = Composer()
    calls = []
    original = configs.unresolved

    def counted(groups=(), config_dir=None):
        calls.append(groups)
        return original(groups, config_dir)

    configs.unresolved = counted
    try:
        for seed in range(300):
            for method in ("grpo", "graft"):
                composer.compose({"algorithm": method, "seed": seed, "protocol.learning_rate": seed * 1e-6})
    finally:
        configs.unresolved = original
    assert len(calls) == 2
    assert len(composer._templates) == 2
