"""What would fail after an hour of training is refused before it, in one line, by the real command line."""

from __future__ import annotations

import fcntl

import pytest

from sweeps import cli, preflight
from sweeps.config import compose
from sweeps.schema import ConfigError

UNSEEN = "protocol.evaluation.lists.unseen_games"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([f"{UNSEEN}.split=foo"], f"{UNSEEN}: unknown ALFWorld split 'foo'"),
        ([f"{UNSEEN}.count=1000"], f"{UNSEEN}: .*144"),
        (["protocol.train.split=foo"], "protocol.train: unknown ALFWorld split 'foo'"),
        (
            ["protocol.train.count=null", "protocol.train.offset=2996"],
            "protocol.train holds 4 tasks, fewer than protocol.tasks_per_update=8",
        ),
        (["benchmark.options.data=offical"], "benchmark.options: .*official"),
        (["benchmark.options.history=abc"], "benchmark.options: "),
        (["+benchmark.options.dta=x"], "benchmark.options: .*data"),
        (["resources.report_to=[tensorbord]"], "'tensorbord' does not exist; did you mean 'tensorboard'"),
        (["model=hub", "model.path=/no/such/folder"], "model.path=/no/such/folder: no such folder"),
    ],
)
def test_late_failures_are_refused_early(overrides, message):
    with pytest.raises(ConfigError, match=message) as error:
        preflight.check(compose(overrides))
    assert "\n" not in str(error.value)


def test_a_good_configuration_passes():
    preflight.check(compose(["algorithm=initial"]))


def test_missing_official_data_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "nowhere"))
    for command in (["train"], ["quickstart"], ["quickstart", "--dry-run"]):
        code = cli.main([*command, "--out", str(tmp_path / "out"), "benchmark.options.data=official"])
        error = capsys.readouterr().err
        assert code == 2
        assert "ALFWORLD_DATA" in error
        assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_device_that_does_not_exist(tmp_path, capsys):
    assert cli.main(["train", "--out", str(tmp_path), "resources.device=gpu0"]) == 2
    assert "resources.device must be one of auto, cpu, cuda" in capsys.readouterr().err


def test_an_output_folder_that_cannot_be_made(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert cli.main(["train", "--out", str(blocked)]) == 1
    assert capsys.readouterr().err.startswith(f"creditbench: error: {blocked}")


def test_a_folder_in_use_by_another_quickstart(tmp_path, capsys):
    with (tmp_path / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert cli.main(["quickstart", "--out", str(tmp_path)]) == 1
    assert f"another quick start is working in {tmp_path}" in capsys.readouterr().err
    assert not (tmp_path / "plan.json").exists()


def test_no_methods_at_all(tmp_path, capsys):
    assert cli.main(["quickstart", "--out", str(tmp_path), "--methods", "", "--dry-run"]) == 2
    assert "--methods: '' does not exist" in capsys.readouterr().err
