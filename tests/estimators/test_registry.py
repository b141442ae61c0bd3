"""The registry: names, options and their errors, estimators registered from outside."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import sys

import numpy as np
import pytest
from batches import batch_of, episode

from algorithms import COMMON_OPTIONS, CommonOptions, Estimator, OptionError, estimate, estimators, options_type
from algorithms import benchmark as speed
from algorithms.estimators.base import Credit

SIX = ("grpo", "gigpo", "graphgpo", "g2po", "graphhca", "graft")
BATCH = batch_of(episode(0, ["a", "b", "c"], True) + episode(1, ["a", "c"], False, invalid=(0,)))


def test_the_order_is_fixed():
    assert estimators()[:6] == SIX


@pytest.mark.parametrize("name", SIX)
class TestOptions:
    def test_every_estimator_takes_the_common_options(self, name):
        fields = {field.name: field.default for field in dataclasses.fields(options_type(name))}
        common = {field.name: field.default for field in dataclasses.fields(CommonOptions)}
        assert tuple(common) == COMMON_OPTIONS
        assert {key: fields[key] for key in COMMON_OPTIONS} == common

    def test_options_are_frozen(self, name):
        options = options_type(name)()
        with pytest.raises(dataclasses.FrozenInstanceError):
            options.normalization = "mean"

    def test_the_defaults_are_what_estimate_uses(self, name):
        spelled_out = dataclasses.asdict(options_type(name)())
        np.testing.assert_array_equal(estimate(name, BATCH, **spelled_out).advantages, estimate(name, BATCH).advantages)

    def test_diagnostics_are_strict_json(self, name):
        record = estimate(name, BATCH).diagnostics
        assert json.loads(json.dumps(record, allow_nan=False)) == record

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"normalisation": "mean"}, r"has no option 'normalisation'; did you mean 'normalization'\? valid: norm"),
            ({"zzz": 1}, r"has no option 'zzz'; valid: normalization, baseline_over"),
            ({"normalization": "std"}, r"option 'normalization' is 'std'; it must be one of 'mean_std', 'mean'"),
            ({"baseline_over": "rows"}, r"'rows'; it must be one of 'trajectories', 'steps'"),
            ({"state_matching": "fuzzy"}, r"'fuzzy'; it must be one of 'exact', 'ratcliff', 'embedding'"),
            ({"invalid_action_penalty": -0.1}, r"'invalid_action_penalty' is -0.1; it must be a number >= 0"),
            ({"invalid_action_penalty": math.inf}, r"it must be a number >= 0"),
            ({"invalid_action_penalty": True}, r"it must be a number >= 0"),
        ],
    )
    def test_a_wrong_option_is_one_clear_error(self, name, options, message):
        with pytest.raises(OptionError, match=f"estimator '{name}'.*{message}"):
            estimate(name, BATCH, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gigpo", {"gamma": 0.0}, "must be a number > 0 and <= 1"),
        ("gigpo", {"gamma": 1.01}, "must be a number > 0 and <= 1"),
        ("gigpo", {"gamma": math.nan}, "must be a number > 0 and <= 1"),
        ("gigpo", {"gamma": "big"}, "must be a number > 0 and <= 1"),
        ("g2po", {"node_centric": 1}, "must be true or false"),
        ("graphgpo", {"omega": 0}, "must be a number > 0"),
        ("graphgpo", {"progress": "yes"}, "must be true or false"),
        ("graphhca", {"power": 0.5}, "must be a number >= 1"),
        ("graphhca", {"floor": 0}, "must be a number > 0"),
        ("graft", {"gae_lambda": -0.1}, "must be a number >= 0 and <= 1"),
        ("graft", {"gae_lamda": 0.9}, "did you mean 'gae_lambda'"),
        ("graft", {"sinks": "none"}, "must be one of 'merged', 'dedicated'"),
        ("graft", {"normalize": None}, "must be true or false"),
    ],
)
def test_own_options_are_checked(name, options, message):
    with pytest.raises(OptionError, match=message):
        estimate(name, BATCH, **options)


def test_power_may_be_written_as_the_word():
    assert options_type("graphhca")(power="inf").power == math.inf


def test_an_unknown_estimator_names_the_nearest():
    with pytest.raises(OptionError, match=r"there is no estimator 'graftt'; did you mean 'graft'.*valid: grpo, gigpo"):
        estimate("graftt", BATCH)


@dataclasses.dataclass(frozen=True)
class LengthOptions(CommonOptions):
    scale: float = 1.0


def length_credit(batch, options):
    lengths = options.scale * batch.layout.length.astype(float)
    return Credit(lengths, np.zeros(batch.layout.rows, dtype=bool), 0)


LENGTH = Estimator("length", LengthOptions, length_credit)


class TestEntryPoints:
    @pytest.fixture
    def register(self, monkeypatch):
        def register(**points):
            found = [
                importlib.metadata.EntryPoint(name, value, "creditbench.estimators") for name, value in points.items()
            ]
            monkeypatch.setattr(
                importlib.metadata, "entry_points", lambda group: [e for e in found if e.group == group]
            )

        return register

    def test_an_estimator_from_outside_is_one_of_them(self, register):
        register(zeta=f"{__name__}:LENGTH", length=f"{__name__}:LENGTH")
        assert estimators() == (*SIX, "length", "zeta")
        result = estimate("length", BATCH, scale=2.0)
        assert result.advantages.tolist() == [4.0, 4.0, 2.0]
        assert result.diagnostics["rows"] == 3
        assert options_type("length") is LengthOptions

    def test_it_can_not_replace_a_built_in_one(self, register):
        register(graft=f"{__name__}:LENGTH")
        assert estimators() == SIX
        assert options_type("graft") is not LengthOptions

    def test_something_else_behind_the_name_is_refused(self, register):
        register(odd=f"{__name__}:length_credit")
        with pytest.raises(TypeError, match=r"creditbench\.estimators:odd .* must be an Estimator, not function"):
            estimate("odd", BATCH)

    def test_one_that_is_broken_does_not_disturb_the_others(self, register):
        register(broken="no_such_module_anywhere:X")
        assert estimators() == (*SIX, "broken")
        assert len(estimate("graft", BATCH).advantages) == 3
        with pytest.raises(ModuleNotFoundError):
            estimate("broken", BATCH)


class TestBenchmark:
    COLUMNS = speed.synthetic_columns(3, seed=3, state_length=60)

    def test_the_synthetic_batch_is_valid_and_its_strings_are_distinct_objects(self):
        columns = speed.synthetic_columns(3)
        assert 3 * 8 * 10 <= len(columns["step"]) <= 3 * 8 * 50
        assert {len(text) for text in columns["state"]} == {500}
        assert len({id(text) for text in columns["state"] + columns["next_state"]}) == 2 * len(columns["state"])
        record = estimate("grpo", speed.RolloutBatch.from_columns(success_reward=10.0, **columns)).diagnostics
        assert 0.2 < record["merge_rate"] < 0.9

    def test_plain_loops_agree_with_the_estimators(self):
        batch = speed.RolloutBatch.from_columns(success_reward=10.0, **self.COLUMNS)
        step_term = estimate("gigpo", batch).advantages - estimate("grpo", batch).advantages
        np.testing.assert_allclose(speed.plain_gigpo(self.COLUMNS), step_term, atol=1e-9)
        np.testing.assert_allclose(speed.plain_graft(self.COLUMNS), estimate("graft", batch).advantages, atol=1e-5)

    def test_the_command_prints_every_estimator_and_size(self, capsys):
        assert speed.main(["--rows", "400", "--max-rows", "900", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        for part in ("paper_size", "growth"):
            assert [record["estimator"] for record in report[part]] == list(estimators())
        assert all(record["seconds"] > 0 for record in report["growth"])
        assert speed.main(["--rows", "400"]) == 0
        assert "plain loop of graft" in capsys.readouterr().out


assert sys.modules[__name__].LENGTH is LENGTH  # entry points load this module by its name
