"""Search-QA in the common trainer: retrieval over HTTP that dies in the middle of training, and its command line."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from own_server import OwnServer

from benchmarks.search_qa import make
from benchmarks.search_qa.options import Options
from benchmarks.search_qa.retrieval import engines
from benchmarks.search_qa.retrieval.base import RetrievalError
from benchmarks.search_qa.retrieval.server import Limits, Service
from sweeps import preflight
from sweeps.cli import main
from sweeps.config import compose
from sweeps.files import StoreError
from sweeps.run import run_cell
from sweeps.schema import ConfigError
from sweeps.store import RunFolder

SMALL = [
    "benchmark=search_qa", "algorithm=gigpo", "protocol.updates=3", "protocol.group_size=4",
    "protocol.tasks_per_update=4", "protocol.train.count=4", "protocol.checkpoint_every=1",
    "protocol.evaluation.lists.training_games.count=2", "protocol.evaluation.lists.training_games.repeats=1",
    "protocol.evaluation.lists.unseen_games.count=2", "protocol.evaluation.lists.unseen_games.repeats=1",
    "model.hidden_size=32", "model.heads=2", "model.layers=1", "model.intermediate_size=32",
    "model.warm_start.tasks=15", "model.warm_start.steps=40", "resources.device=cpu", "resources.threads=1",
]  # fmt: skip


def run_of(out: Path, *more: str) -> RunFolder:
    return RunFolder.create(out / "runs", compose([*SMALL, *more]))


def over_http(url: str, attempts: int) -> list[str]:
    return [
        "benchmark.options.retriever=http",
        f"benchmark.options.url={url}",
        f"benchmark.options.attempts={attempts}",
    ]


def science(run: RunFolder) -> tuple[list[dict], dict[str, list[dict]]]:
    """Metrics without times, and evaluated episodes without the engine's name."""
    clocks = ("wall", "time")
    metrics = [{k: v for k, v in row.items() if k not in clocks and "timing/" not in k} for row in run.metrics()]
    episodes = {
        name: [{k: v for k, v in row.items() if k != "retrieval"} for row in rows]
        for name, (_, rows) in run.evaluations().items()
    }
    return metrics, episodes


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("search_qa")


@pytest.fixture(scope="module")
def undisturbed(cache) -> RunFolder:
    run = run_of(cache)
    run_cell(run.path)
    return run


class Mortal:
    """Our BM25, whose server dies at the first search after `run` has recorded its second update."""

    def __init__(self):
        self.engine = engines.build(Options(data="search-worlds"), "queries")
        self.fingerprint = self.engine.fingerprint
        self.run: RunFolder | None = None
        self.killed = threading.Event()
        self.server = OwnServer(Service(Limits(), self))

    def search(self, queries, k):
        if self.run is not None and not self.killed.is_set() and len(self.run.metrics()) == 2:
            threading.Thread(target=self._die, daemon=True).start()
            self.killed.wait()
            raise SystemError("killed")
        return self.engine.search(queries, k)

    def record(self):
        return self.engine.record()

    def _die(self):
        self.server.server.should_exit = self.server.server.force_exit = True
        self.killed.set()
        self.server.stop()

    def revive(self, data: str = "search-worlds") -> OwnServer:
        self.server.thread.join()
        self.engine = engines.build(Options(data=data), "queries")
        self.fingerprint = self.engine.fingerprint
        return OwnServer(Service(Limits(), self), self.server.port)


def test_a_server_that_dies_and_comes_back_changes_nothing(cache, undisturbed):
    mortal = Mortal()
    back: list[OwnServer] = []

    def later():
        mortal.killed.wait()
        time.sleep(0.3)
        back.append(mortal.revive())

    threading.Thread(target=later, daemon=True).start()
    run = mortal.run = run_of(cache, *over_http(mortal.server.url, attempts=10))
    run_cell(run.path)
    assert mortal.killed.is_set()
    back[0].stop()
    assert science(run) == science(undisturbed)
    assert run.result()["data"]["retrieval"]["server"]["corpus"] == "search-worlds-v1"


def test_a_server_that_stays_away_stops_the_run_which_goes_on_later(cache, undisturbed):
    mortal = Mortal()
    run = mortal.run = run_of(cache, *over_http(mortal.server.url, attempts=2))
    with pytest.raises(RetrievalError, match=rf"{mortal.server.url} failed 2 times"):
        run_cell(run.path)
    assert run.state() == "failed"
    assert mortal.server.url in json.dumps(run.error())
    assert len(run.metrics()) == 2
    assert run.result() is None
    assert not run.evaluations()
    with mortal.revive(data="hotpotqa-mini"), pytest.raises(StoreError, match="began with passages of fingerprint"):
        run_cell(run.path)
    assert len(run.metrics()) == 2
    with mortal.revive():
        run_cell(run.path)
    assert science(run) == science(undisturbed)
    assert len({row["loss"] for row in run.metrics()}) > 1  # it did learn something meanwhile


def test_metrics_of_an_update(undisturbed):
    row = undisturbed.metrics()[0]
    for name in ("answered", "searches", "gold_in_information", "out_of_turns", "cut_texts", "f1", "substring_em"):
        assert 0.0 <= row[f"measure/{name}"] <= 4.0
    assert 0.0 <= row["advantage/merge_rate"] <= 1.0
    assert 0.0 <= row["invalid_format"] <= 1.0


def test_scores_on_the_command_line(undisturbed, tmp_path, capsys):
    assert main(["search-qa", str(undisturbed.path), "--json", str(tmp_path / "scores.json")]) == 0
    shown = capsys.readouterr().out
    assert "## unseen_games/after" in shown
    assert "question weighted" in shown
    written = json.loads((tmp_path / "scores.json").read_text())
    (report,) = written["unseen_games/after"].values()
    assert report["means"]["question_weighted"]["n"] == 2


def test_unlike_runs_share_no_table(cache, undisturbed, capsys):
    other = run_of(cache, "benchmark.options.profile=verl_agent", "protocol.updates=1")
    run_cell(other.path)
    assert main(["search-qa", str(undisturbed.path), str(other.path)]) == 2
    said = capsys.readouterr().err
    assert "search_qa-verl_agent-search-worlds-v1" in said
    assert "make a table of each kind" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["benchmark.options.data=hotpotqa-mini"], "needs a language model"),
        (["benchmark.options.profile=strickt"], "did you mean 'strict'"),
        (["benchmark.options.retriever=http"], "needs url="),
        (["benchmark.options.retriever=http", "benchmark.options.url=http://127.0.0.1:9/retrieve",
          "benchmark.options.attempts=1"], "http://127.0.0.1:9/retrieve failed 1 times"),
        (["benchmark.options.data=files", "benchmark.options.data_dir=/no/such", "benchmark.options.corpus=/no/such"],
         "needs a language model"),
        (["benchmark.options.corpus=/no/such"], "/no/such does not exist"),
    ],
)  # fmt: skip
def test_what_would_fail_later_is_refused_at_once(more, message, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv(engines.URL_VARIABLE, raising=False)
    assert main(["train", *SMALL, *more, "--out", str(tmp_path)]) != 0
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_login_node_need_not_reach_what_a_job_will(tmp_path, monkeypatch):
    config = compose([*SMALL, *over_http("http://127.0.0.1:9/retrieve", attempts=1)])
    preflight.check(config, here=False)
    with pytest.raises(ConfigError, match="failed 1 times"):
        preflight.check(config)
    big = tmp_path / "index"
    big.write_bytes(b"x")
    monkeypatch.setattr("benchmarks.search_qa.retrieval.dense.free_memory", lambda: 0)
    dense = {"retriever": "dense", "index": str(big), "encoder": "some/hub-name", "data": "hotpotqa-mini"}
    make(**dense).check(here=False)
    with pytest.raises(ValueError, match="does not fit"):
        make(**dense).check()
    with pytest.raises(ValueError, match="does not exist"):
        make(**dense | {"index": str(tmp_path / "none")}).check(here=False)
    with pytest.raises(ValueError, match="no such folder"):
        make(**dense | {"encoder": str(tmp_path / "none"), "index": ""}).check(here=False)


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--data", "nq"], ["--topk", "0"], ["--queue", "0"]])
def test_wrong_arguments_of_the_server(arguments, capsys):
    assert main(["serve-retrieval", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
