"""Composition, checks, identity, and that a comparison is fair by structure."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields

import pytest
import yaml

from algorithms import COMMON_OPTIONS, estimators, options_type
from sweeps import config as configs
from sweeps.config import CONF, GROUPS, ConfigError, choices, compose, identity, validate

ALL_MODELS = [name for name in choices("model") if name != "hub"]


def in_yaml(group: str, name: str) -> dict:
    return yaml.safe_load((CONF / group / f"{name}.yaml").read_text())


# --- what ships


@pytest.mark.parametrize("name", estimators())
def test_a_method_configures_nothing_but_its_own_knobs(name):
    algorithm = in_yaml("algorithm", name)
    assert set(algorithm) <= {"name", "objective", "options", "by_benchmark"}
    own = {field.name for field in fields(options_type(name))} - set(COMMON_OPTIONS)
    assert set(algorithm["options"]) == own
    shared = set(in_yaml("protocol", "quick")) | set(COMMON_OPTIONS)
    assert not shared & set(algorithm["options"])


@pytest.mark.parametrize("name", estimators())
def test_defaults_are_those_of_the_options_class(name):
    options = compose([f"algorithm={name}"])["algorithm"]["options"]
    defaults = {field.name: field.default for field in fields(options_type(name))}
    assert MISSING not in defaults.values()
    assert options == {key: value for key, value in defaults.items() if key not in COMMON_OPTIONS}
    assert [type(value) for value in options.values()] == [type(defaults[key]) for key in options]


def test_methods_of_a_comparison_share_everything_else():
    shared = [{key: value for key, value in compose([f"algorithm={name}"]).items() if key != "algorithm"}
              for name in (*estimators(), "initial")]  # fmt: skip
    assert all(entry == shared[0] for entry in shared)


def test_all_protocols_have_the_same_fields():
    composed = [compose([f"protocol={name}"])["protocol"] for name in choices("protocol")]
    assert len(composed) > 1
    assert all(list(protocol) == list(composed[0]) for protocol in composed)


@pytest.mark.parametrize("model", ALL_MODELS)
def test_every_model_composes(model):
    assert compose([f"model={model}"])["model"]["name"] == model


def test_every_combination_of_the_other_groups_composes():
    for protocol in choices("protocol"):
        for resources in choices("resources"):
            for benchmark in choices("benchmark"):
                names = [f"protocol={protocol}", f"resources={resources}", f"benchmark={benchmark}"]
                assert compose(names)["protocol"]["name"] == protocol


def test_train_and_unseen_lists_are_disjoint_in_every_protocol():
    for name in choices("protocol"):
        protocol = compose([f"protocol={name}"])["protocol"]
        lists = protocol["evaluation"]["lists"]
        unseen = [chosen for list_name, chosen in lists.items() if not list_name.startswith("training")]
        assert unseen
        assert all(chosen["split"] != protocol["train"]["split"] for chosen in unseen)


# --- overrides


def test_an_override_wins_over_a_value_that_depends_on_another_group():
    assert compose()["benchmark"]["options"]["data"] == "synth-small"
    assert compose(["protocol=paper_alfworld"])["benchmark"]["options"]["data"] == "synth"
    assert compose(["benchmark.options.data=synth"])["benchmark"]["options"]["data"] == "synth"
    graft = compose(["algorithm=graft", "algorithm.options.gae_lambda=0.3"])["algorithm"]
    assert graft["options"]["gae_lambda"] == 0.3


def test_knobs_follow_the_benchmark(tmp_path):
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "webshop.yaml").write_text("name: webshop\nsuccess_reward: 10.0\noptions: {}\n")
    (tmp_path / "benchmark" / "other.yaml").write_text("name: other\nsuccess_reward: 1\noptions: {}\n")

    def option(algorithm: str, benchmark: str, key: str) -> float:
        names = [f"algorithm={algorithm}", f"benchmark={benchmark}"]
        return compose(names, tmp_path)["algorithm"]["options"][key]

    assert [option("graft", name, "gae_lambda") for name in ("alfworld", "webshop", "other")] == [0.95, 0.8, 0.95]
    assert [option("graphgpo", name, "omega") for name in ("alfworld", "webshop", "other")] == [0.1, 0.2, 0.1]


def test_response_length_follows_the_model():
    assert compose(["model=tiny"])["protocol"]["max_response_tokens"] == 16
    assert compose(["model=smollm2"])["protocol"]["max_response_tokens"] == 128


def test_tables_of_dependent_values_are_not_part_of_a_run():
    assert "by_" not in json.dumps(compose(["algorithm=graphgpo"]))


def test_free_mappings_take_new_keys_without_a_plus():
    changed = compose(["benchmark.options.engines_per_game=4", "+benchmark.options.more=[1,2]"])
    assert changed["benchmark"]["options"]["engines_per_game"] == 4
    assert changed["benchmark"]["options"]["more"] == [1, 2]
    lists = compose(["~protocol.evaluation.lists.unseen_games"])["protocol"]["evaluation"]["lists"]
    assert list(lists) == ["training_games"]


def test_a_config_dir_adds_choices(tmp_path):
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "mine.yaml").write_text("name: gigpo\nobjective: ppo\noptions: {gamma: 0.5}\n")
    mine = compose(["algorithm=mine"], tmp_path)["algorithm"]
    assert mine == {"name": "gigpo", "objective": "ppo", "options": {"gamma": 0.5}}
    assert "mine" in choices("algorithm", tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        compose(["algorithm=mine"])


def test_a_registered_estimator_without_a_file_says_what_to_write(monkeypatch):
    monkeypatch.setattr("algorithms.estimators", lambda: ("grpo", "theirs"))
    with pytest.raises(ConfigError, match=r"write algorithm/theirs\.yaml .* --config-dir"):
        compose(["algorithm=theirs"])


def test_infinity_survives_as_text():
    options = compose(["algorithm=graphhca", "algorithm.options.power=inf"])["algorithm"]["options"]
    assert options["power"] == "inf"
    assert options_type("graphhca")(**options).power == float("inf")
    json.dumps(options, allow_nan=False)


BAD = {
    "algorithm.gae_lambda=1": "unknown key 'algorithm.gae_lambda'; did you mean 'algorithm.options.gae_lambda'?",
    "algorithm=grfat": "algorithm 'grfat' does not exist; did you mean 'graft'? (known: g2po, ",
    "protocol.updates=x": "protocol.updates must be a whole number >= 0, got 'x'",
    "protocol.updates=-1": "protocol.updates must be a whole number >= 0, got -1",
    "protocol.updates=true": "protocol.updates must be a whole number >= 0, got True",
    "protocol.updatse=3": "unknown key 'protocol.updatse'; did you mean 'protocol.updates'?",
    "updates=3": "unknown key 'updates'; did you mean 'protocol.updates'?",
    "protocl=quick": "unknown key 'protocl'; did you mean 'protocol'?",
    "++protocol.foo=1": "unknown key 'protocol.foo'",
    "graft": "cannot read 'graft': an override is key=value; did you mean 'algorithm=graft'?",
    "seed=[": "cannot read the override 'seed=['",
    "seed=1,2": "'seed=1,2' lists several values; a run takes one value for each key",
    "seed=${now:%Y}": "seed: the resolver ${now:...} cannot be used",
    "seed=${oc.env:HOME}": "seed: the resolver ${oc.env:...} cannot be used",
    "seed=${nope}": "seed: Interpolation key 'nope' not found",
    "model=hub": "model.path has no value; set model.path=...",
    "~seed": "seed is missing",
    "~algorithm": "'~algorithm': a run needs its algorithm",
    "hydra.run.dir=x": "hydra's own settings cannot be changed",
    "protocol.temperature=0": "protocol.temperature must be a number > 0, got 0",
    "protocol.temperature=nan": "protocol.temperature must be a number > 0, got nan",
    "protocol.adam_betas=[0.9]": "protocol.adam_betas must be a list of 2 values",
    "protocol.adam_betas=[0.9,2]": "protocol.adam_betas[1] must be a number >= 0 and <= 1, got 2",
    "protocol.baseline_over=step": "must be one of trajectories, steps, got 'step'; did you mean 'steps'?",
    "protocol.evaluation.lists.more.split=train": "protocol.evaluation.lists.more.offset is missing",
    "protocol.evaluation.lists=3": "protocol.evaluation.lists must be a mapping",
    "protocol.train={split:train,ofset:2}": "unknown key 'protocol.train.ofset'; did you mean 'offset'?",
    "protocol.train.count=4": "protocol.train.count 4 is smaller than protocol.tasks_per_update 8",
    "protocol.group_size=1": "protocol.group_size must be >= 2 to train",
    "model.hidden_size=50": "model.hidden_size 50 must be a multiple of model.heads 4",
    "model.kind=hubb": "model.kind must be one of tiny, smollm2, hub, got 'hubb'; did you mean 'hub'?",
    "algorithm.name=grfat": "algorithm.name: no estimator 'grfat' is registered; did you mean 'graft'?",
    "algorithm.options.gae_lamda=1": "unknown key 'algorithm.options.gae_lamda'; did you mean 'gae_lambda'?",
    "algorithm.options.gae_lambda=2": "algorithm.options: option 'gae_lambda' is 2",
    "algorithm.options.normalization=mean": "is shared by all methods; set protocol.normalization instead",
    "resources.generation.engine=vlm": "must be one of transformers, vllm, got 'vlm'; did you mean 'vllm'?",
}


@pytest.mark.parametrize("override", BAD)
def test_a_bad_override_gives_one_line_with_the_way_out(override):
    with pytest.raises(ConfigError) as caught:
        compose([override])
    assert BAD[override] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_policy_as_it_is_takes_no_options():
    with pytest.raises(ConfigError, match="evaluated only"):
        compose(["algorithm=initial", "algorithm.options.gamma=1"])


def test_a_config_dir_that_is_not_one(tmp_path):
    with pytest.raises(ConfigError, match="--config-dir"):
        compose([], tmp_path)


@pytest.mark.parametrize("text", ["nonsense: [", "name: graft\n", "[]"])
def test_a_broken_file_in_the_config_dir_gives_one_line(tmp_path, text):
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        compose(["algorithm=mine"], tmp_path)
    assert "\n" not in str(caught.value)


# --- identity


def test_identity_is_the_science_alone():
    base = identity(compose())
    assert len(base) == 16
    assert int(base, 16) >= 0
    assert identity(compose(["resources=gpu"])) == base
    assert identity(compose(["resources.rows_per_microbatch=7"])) == base
    changes = ["seed=2", "protocol.updates=13", "algorithm=grpo", "model.layers=1", "benchmark.options.history=3"]
    assert len({identity(compose([change])) for change in changes} | {base}) == len(changes) + 1


def test_one_number_written_two_ways_is_one_run():
    assert identity(compose(["protocol.temperature=1"])) == identity(compose())
    assert identity(compose(["algorithm.options.gamma=1"])) == identity(compose(["algorithm.options.gamma=1.0"]))
    assert identity(compose(["benchmark.success_reward=10"])) == identity(compose())


def test_identity_survives_the_record(tmp_path):
    config = compose(["protocol=paper_alfworld"])
    assert identity(yaml.safe_load(yaml.safe_dump(config))) == identity(config)
    assert identity(dict(reversed(config.items()))) == identity(config)
    assert validate(config) == config


def test_a_key_introduced_later_keeps_old_identities(monkeypatch):
    old = compose()
    new = {**old, "protocol": {**old["protocol"], "later": {"knob": 3}}}
    assert identity(new) != identity(old)
    monkeypatch.setitem(configs._DEFAULTS_AT_INTRODUCTION, "protocol.later", {"knob": 3})
    assert identity(new) == identity(old)
    new["protocol"]["later"] = {"knob": 4}
    assert identity(new) != identity(old)


def test_groups_are_the_folders_of_conf():
    of_grids = {"cluster", "grid", "launch"}
    assert {*GROUPS, *of_grids} == {path.name for path in CONF.iterdir() if path.is_dir()}
