"""Official data, as far as it can be tested without a download: generated games in its layout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.alfworld import make, official, oracle, synth, upstream
from benchmarks.alfworld.game_data import split_grammar

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    games = {
        "train": [synth.make_game("alfworld-synth-small-v1", "train", index) for index in range(7)],
        "valid_seen": [synth.make_game("alfworld-synth-small-v1", "valid_seen", 0)],
    }
    official.write_games(tmp_path, games)
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    official._scan.cache_clear()
    yield tmp_path
    official._scan.cache_clear()


def trials(folder: Path) -> list[Path]:
    return sorted(path.parent for path in (folder / official.FOLDER / "train").rglob("traj_data.json"))


def edit(path: Path, **changes) -> None:
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def test_official_games_play_as_generated_ones(folder):
    with pytest.warns(UserWarning, match="has 7 games where the published split has 3553"):
        tasks = make(data="official").task_set("train")
    assert [task.id for task in tasks.tasks] == sorted(task.id for task in tasks.tasks)
    generated = make(data="synth-small").task_set("train", 7)
    assert sorted(tasks.digests) == sorted(generated.digests)
    assert sorted(task.kind for task in tasks.tasks) == sorted(task.kind for task in generated.tasks)
    benchmark = make(data="official")
    assert benchmark.label == "alfworld-2.1.1"
    episode = benchmark._player.episode(tasks.tasks[0])
    assert oracle.play(episode, oracle.search_policy)[0]
    pool = benchmark.pool(1, workers=1)
    assert pool.reset(tasks.tasks[:1]) == benchmark.pool(1).reset(tasks.tasks[:1])
    pool.close()


def test_games_that_alfworld_skips_are_skipped(folder):
    first, second, third, fourth, fifth, *rest = trials(folder)
    first.rename(first.parent / "trial_movable")
    edit(second / official.GAME_FILE, solvable=False)
    edit(third / official.GAME_FILE, solvable=None)
    edit(fourth / "traj_data.json", task_type="pick_and_place_with_movable_recep")
    (fifth / official.GAME_FILE).unlink()
    with pytest.warns(UserWarning, match="has 2 games"):
        paths = official.game_paths("train")
    base = folder / official.FOLDER
    assert [base / path for path in paths] == rest


def test_no_variable(monkeypatch):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(
        FileNotFoundError, match=r"ALFWORLD_DATA, which is not set; run `alfworld-download`.*data=synth"
    ):
        make(data="official").task_set("train")


def test_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"ALFWORLD_DATA={tmp_path} holds no folder json_2.1.1; run"):
        make(data="official").task_set("train")


def test_half_unpacked(folder):
    for trial in trials(folder):
        (trial / official.GAME_FILE).unlink()
    with pytest.raises(
        FileNotFoundError, match=r"not completely unpacked: json_2.1.1/train has 7 traj_data.json and no"
    ):
        make(data="official").task_set("train")
    with pytest.raises(FileNotFoundError, match=r"json_2.1.1/valid_unseen has 0"):
        make(data="official").task_set("valid_unseen")


def test_damaged_file(folder):
    path = trials(folder)[2] / official.GAME_FILE
    path.write_text(path.read_text()[:1000])
    with pytest.raises(ValueError, match=r"game.tw-pddl in ALFWORLD_DATA is cut off or damaged"):
        make(data="official").task_set("train")


def test_verb_set_of_a_grammar():
    _, grammar = upstream.domain_and_grammar()
    assert official.put_command(grammar) == "move {o} to {r}"
    old = grammar.replace('template :: "move {o} to {r}"', 'template :: "put {o} in/on {r}"')
    assert official.put_command(old) == "put {o} in/on {r}"
    assert official.put_command("") == ""


def test_grammar_and_sentence_come_apart():
    game = synth.make_game("alfworld-synth-v1", "train", 0)
    assert split_grammar(game.engine_data()["grammar"]) == (game.grammar, game.sentence)
    with pytest.raises(ValueError, match="names no task"):
        split_grammar("grammar without one")


def _run(script: str, home: Path, **variables: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "ALFWORLD_DATA"}
    environment |= {"PYTHONPATH": str(ROOT), "HOME": str(home), **variables}
    command = [sys.executable, "-c", textwrap.dedent(script), "--flag", "value"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # a crash at exit shows here
    return done.stdout


@pytest.mark.parametrize("caches", [True, False])
def test_the_process_is_left_as_it_was(tmp_path, caches):
    script = f"""
        import os, sys, tempfile
        from pathlib import Path
        argv, out = sys.argv, sys.stdout
        from benchmarks.alfworld import make
        benchmark = make(data="synth-small", caches={caches})
        pool = benchmark.pool(2)
        pool.reset(benchmark.task_set("train", 2).tasks)
        pool.step([(1, "look"), (0, "help")])
        assert sys.argv is argv and argv[1:] == ["--flag", "value"], sys.argv
        assert sys.stdout is out
        assert "ALFWORLD_DATA" not in os.environ
        pool.close()
        print([path.name for path in Path(tempfile.gettempdir()).iterdir()])
    """
    (tmp_path / "tmp").mkdir()
    assert _run(script, tmp_path, TMPDIR=str(tmp_path / "tmp")) == "[]\n"
    assert not (tmp_path / ".cache" / "alfworld").exists()


def test_the_library_copy_is_slim():
    from fast_downward import interface

    stock = Path(interface.DOWNWARD_LIB_PATH)
    assert len(upstream._loadable_part(stock)) < 2_000_000 < stock.stat().st_size
    assert upstream._loadable_part(ROOT / "LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_a_missing_package_says_how_to_install_it():
    with pytest.raises(ImportError, match=r"needs the package 'no_such_package'.*creditbench\[alfworld\]"):
        upstream.package_folder("no_such_package")
