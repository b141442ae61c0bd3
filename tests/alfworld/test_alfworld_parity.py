"""The cached engine says exactly what the stock engine says."""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.alfworld import caches, engine, rooms, synth, upstream
from benchmarks.alfworld.episode import GraphSession, StockSession
from benchmarks.alfworld.game_data import GameData

SMALL, STOCK = "alfworld-synth-small-v1", "alfworld-synth-v1"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stock_env():
    return upstream.stock_environment()


@pytest.fixture(scope="module")
def memo():
    return engine.Games(engines=2, games=8, states=10_000, memo=True)


@pytest.fixture(scope="module")
def no_memo():
    return engine.Games(engines=2, games=8, states=10_000, memo=False)


def opening(data: GameData, admissible: tuple[str, ...]) -> list[str]:
    """Commands that a random walk may miss."""
    goto = admissible[random.Random(data.id).randrange(admissible.index("help"))]
    return ["look", "inventory", "help", goto, goto.replace("go to", "examine"), "look"]


def compare(data: GameData, stock_env, players, walker, steps: int, walks: int = 1) -> None:
    """Random walks after an opening, then the planner's way to the win."""
    for number in range(walks + 1):
        stock = StockSession(stock_env, data)
        sessions = [GraphSession(games.get(data)) for games in players]
        rng = random.Random(f"{data.id}/{number}")
        plan = sessions[0].plan() if number == walks else None
        script = opening(data, stock.admissible) if plan is None else plan
        assert all(session.intro == stock.intro for session in sessions)
        for step in range(steps if plan is None else len(plan)):
            command = script[step] if step < len(script) else walker(stock.admissible, rng)
            feedback = stock.step(command)
            for session in sessions:
                assert session.step(command) == feedback, (number, step, command)
                assert session.admissible == stock.admissible, (number, step, command)
                assert (session.won, session.key) == (stock.won, stock.key), (number, step, command)
            if stock.won:
                break
        assert plan is None or stock.won


@pytest.mark.parametrize("index", range(6))
def test_small_rooms_of_every_task_type(index, stock_env, memo, no_memo, walker):
    data = synth.make_game(SMALL, "train", index)
    assert data.task_type == rooms.TASK_TYPES[index]
    compare(data, stock_env, (memo, no_memo), walker, steps=30)


@pytest.mark.parametrize("index", [1, 3])
def test_rooms_of_stock_size(index, stock_env, memo, no_memo, walker):
    compare(synth.make_game(STOCK, "valid_unseen", index), stock_env, (memo, no_memo), walker, steps=18)


@pytest.mark.slow
@pytest.mark.parametrize("index", range(18))
def test_long_walks_in_rooms_of_stock_size(index, stock_env, memo, no_memo, walker):
    compare(synth.make_game(STOCK, "train", index), stock_env, (memo, no_memo), walker, steps=100, walks=2)


def one_location(data: GameData) -> GameData | None:
    """The same game with two shelves at one location, as official games have it; None where it has no such shelves."""
    pairs = re.findall(r"\(receptacleAtLocation (Shelf\S+) (\S+)\)", data.problem)
    if len(pairs) != 2:
        return None
    (_, shared), (_, other) = pairs
    problem = data.problem.replace(f"{other} - location\n", "").replace(other, shared)
    return replace(data, problem=problem)


def test_two_receptacles_at_one_location(stock_env, memo, no_memo, walker):
    """There the text of `look` depends on what was moved before, not only on where things are now."""
    games = filter(None, (one_location(synth.make_game(STOCK, "train", index)) for index in range(200)))
    data = next(game for game in games if "take" in _verbs_at(memo.get(game), "go to shelf 1"))
    compare(data, stock_env, (memo, no_memo), walker, steps=12)
    stock = StockSession(stock_env, data)
    sessions = [GraphSession(memo.get(data)), GraphSession(no_memo.get(data))]
    looks, origin = [], ""
    for verb in ("go to shelf 1", "look", "take", "look", "move", "look", "take", "move", "look"):
        possible = [command for command in stock.admissible if command.startswith(verb)]
        command = next(command for command in possible if verb != "move" or command[-7:] != origin)
        origin = command[-7:] if verb == "take" else origin  # "shelf 1"
        feedback = stock.step(command)
        looks += [feedback] * (verb == "look")
        for session in sessions:
            assert session.step(command) == feedback
            assert session.admissible == stock.admissible
            assert session.key == stock.key
    assert len(set(looks)) > 1


def _verbs_at(game: engine.Game, command: str) -> set[str]:
    node, _ = game.step(game.root, command)
    return {command.split()[0] for command in node.admissible}


def test_memo_does_not_depend_on_who_came_first(memo, walker):
    """Interleaved episodes of one game, with one engine between them, equal episodes played one after another."""
    data = synth.make_game(SMALL, "train", 8)

    def play(sessions, interleaved: bool) -> list[list[str]]:
        traces: list[list[str]] = [[] for _ in sessions]
        rngs = [random.Random(number) for number in range(len(sessions))]
        order = [(step, number) for step in range(20) for number in range(len(sessions))]
        for _, number in order if interleaved else sorted(order, key=lambda pair: pair[1]):
            session = sessions[number]
            if not session.won:
                traces[number].append(session.step(walker(session.admissible, rngs[number])))
        return traces

    def sessions(engines: int, remember: bool) -> list[GraphSession]:
        games = engine.Games(engines, games=1, states=10, memo=remember)
        return [GraphSession(games.get(data)) for _ in range(4)]

    expected = play(sessions(1, remember=False), interleaved=False)
    assert play(sessions(1, remember=True), interleaved=True) == expected
    assert play(sessions(3, remember=True), interleaved=True) == expected
    assert play(sessions(1, remember=False), interleaved=True) == expected


def test_memo_runs_the_engine_once_per_command(monkeypatch, walker):
    games = engine.Games(engines=1, games=4, states=10_000, memo=True)
    game = games.get(synth.make_game(SMALL, "train", 0))
    runs = []
    monkeypatch.setattr(game, "_run", lambda *args, run=game._run: runs.append(args) or run(*args))
    for _ in range(3):
        session, rng = GraphSession(game), random.Random(0)
        for _ in range(20):
            session.step(walker(session.admissible, rng))
    assert 0 < len(runs) <= 20


def test_looking_around_stays_in_one_state(memo):
    session = GraphSession(memo.get(synth.make_game(SMALL, "train", 0)))
    root = session.node
    for command in ("look", "inventory", "help"):
        assert session.step(command)
        assert session.node is root


def test_games_are_dropped_beyond_the_limits():
    games = engine.Games(engines=1, games=2, states=10_000, memo=True)
    first, *_ = [games.get(synth.make_game(SMALL, "train", index)) for index in range(3)]
    assert games.get(first.data) is not first  # built again
    session = GraphSession(first)
    assert session.step("look").startswith("You are in the middle of a room.")  # the dropped one goes on
    few = engine.Games(engines=1, games=2, states=1, memo=True)
    game = few.get(first.data)
    assert game.states == 1
    for command in game.root.admissible:
        game.step(game.root, command)
    assert game.states > 1
    assert few.get(first.data) is game
    assert game.states == 0


_TRACE = """
import random, sys, hashlib
from benchmarks.alfworld import engine, synth
from benchmarks.alfworld.episode import GraphSession
games = engine.Games(engines=2, games=8, states=10_000, memo=True)
trace = hashlib.sha256()
for index in range(6):
    session = GraphSession(games.get(synth.make_game("alfworld-synth-small-v1", "train", index)))
    rng = random.Random(index)
    trace.update(session.intro.encode())
    for _ in range(25):
        command = rng.choice(session.admissible)
        trace.update("|".join((command, session.step(command), *session.admissible, session.key)).encode())
print(trace.hexdigest())
"""


def test_texts_do_not_depend_on_the_hash_seed():
    digests = {_run(_TRACE, PYTHONHASHSEED=seed) for seed in ("0", "1")}
    assert len(digests) == 1
    assert len(digests.pop()) == len(hashlib.sha256().hexdigest())


def _run(code: str, **variables: str) -> str:
    """Output of a fresh interpreter."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_caches_leave_textworld_as_it_was():
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    def functions():
        return textgen.copy_context, textgen._parse_and_convert, Rule.__dict__["parse_conjunctive_query"]

    before = functions()

    def fail() -> None:
        with caches.applied():
            assert all(new is not old for new, old in zip(functions(), before, strict=True))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert functions() == before


def test_other_versions_fall_back_to_the_stock_engine(monkeypatch):
    from benchmarks.alfworld.options import Options
    from benchmarks.alfworld.source import Player, synth_payload, task_of

    monkeypatch.setattr(upstream, "versions", lambda: {"alfworld": "0.4.2", "textworld": "1.8.0"})
    caches.usable.cache_clear()
    try:
        with pytest.warns(UserWarning, match=r"need alfworld 0.4.2, textworld 1.7.0, found .*textworld 1.8.0"):
            player = Player(Options(data="synth-small"))
        data = synth.make_game(SMALL, "train", 0)
        episode = player.episode(task_of(data, synth_payload(SMALL, "train", 0)))
        assert isinstance(episode.session, StockSession)
    finally:
        caches.usable.cache_clear()
