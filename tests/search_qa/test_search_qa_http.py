"""The client against servers that misbehave, and against our own server, on loopback."""

from __future__ import annotations

import json
import random
import socket
import threading
import time

import httpx
import pytest
from faulty_server import FaultyServer, body, found, slow, status, truncated, wrong_count
from own_server import OwnServer

from benchmarks.base import Task
from benchmarks.search_qa import make, questions
from benchmarks.search_qa.options import Options
from benchmarks.search_qa.retrieval import engines
from benchmarks.search_qa.retrieval.base import RetrievalError
from benchmarks.search_qa.retrieval.http_client import HttpEngine, Server
from benchmarks.search_qa.retrieval.server import Limits, Service


def client(*urls: str, **settings) -> HttpEngine:
    quick = {"pause": 0.001, "longest_pause": 0.002, "attempts": 3, "connect_timeout": 2.0, "read_timeout": 5.0}
    return HttpEngine(Server(urls=urls, **{**quick, **settings}))


def ready(server: FaultyServer, faults: list, **settings) -> HttpEngine:
    """A client that has met its server, which then begins to misbehave."""
    engine = client(server.url, **settings)
    assert engine.fingerprint
    server.requests.clear()
    server.faults = faults
    return engine


def texts(hits) -> list[list[str]]:
    return [[hit.text for hit in of_query] for of_query in hits]


# --- both dialects ----------------------------------------------------------------------------------------------------


def test_queries_go_in_one_request():
    with FaultyServer() as server:
        engine = ready(server, [])
        assert texts(engine.search(["a", "b"], 2)) == [["a", "a"], ["b", "b"]]
        assert server.requests == [{"queries": ["a", "b"], "topk": 2, "return_scores": True}]


def test_query_goes_alone_and_answers_keep_their_order():
    with FaultyServer() as server:
        engine = ready(server, [slow(0.2)], dialect="query")
        asked = [f"q{i}" for i in range(50)]
        assert texts(engine.search(asked, 1)) == [[query] for query in asked]
        assert sorted(request["query"] for request in server.requests) == sorted(asked)
        assert len(server.connections) <= 32  # kept alive


def test_connections_are_kept():
    with FaultyServer() as server:
        engine = client(server.url)
        for i in range(5):
            engine.search([f"q{i}"], 1)
        assert len(server.connections) == 1


def test_documents_without_scores_and_with_title_and_text():
    rows = [{"id": 7, "title": "T", "text": "x"}, {"document": {"id": "8", "contents": '"U"\ny'}, "score": 2}]
    with FaultyServer() as server:
        engine = ready(server, [body(json.dumps({"result": [rows]}).encode())])
        (hits,) = engine.search(["q"], 2)
        assert [(hit.id, hit.title, hit.text, hit.score) for hit in hits] == [
            ("7", "T", "x", 0.0),
            ("8", "U", "y", 2.0),
        ]


# --- faults -----------------------------------------------------------------------------------------------------------

FAULTS = {
    "500": status(500),
    "503": status(503),
    "429": status(429),
    "truncated": truncated,
    "wrong count": wrong_count,
    "not JSON": body(b"<html>"),
    "no result": body(b'{"error": "x"}'),
    "result is text": body(b'{"result": "x"}'),
    "hits are text": body(b'{"result": ["x"]}'),
    "hit without id": body(b'{"result": [[{"document": {"contents": "x"}, "score": 1}]]}'),
    "score is NaN": body(b'{"result": [[{"document": {"id": "1", "contents": "x"}, "score": NaN}]]}'),
    "score is text": body(b'{"result": [[{"document": {"id": "1", "contents": "x"}, "score": "1"}]]}'),
    "too slow": slow(0.3),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_passing_fault_is_waited_out(name):
    with FaultyServer() as server:
        engine = ready(server, [FAULTS[name], FAULTS[name]], read_timeout=0.1)
        assert texts(engine.search(["q"], 1)) == [["q"]]
        assert [request["queries"] for request in server.requests[:3]] == [["q"]] * 3
        assert len(server.requests) == 4  # and one more, to see that the passages are still the same


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("dialect", ["queries", "query"])
def test_a_lasting_fault_stops_with_url_and_count(name, dialect):
    with FaultyServer() as server:
        engine = ready(server, [FAULTS[name]] * 100, read_timeout=0.1, dialect=dialect)
        with pytest.raises(RetrievalError) as caught:
            engine.search(["q"], 1)
        assert server.url in str(caught.value)
        assert "failed 3 times" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(server.requests) == 3


def test_a_lasting_fault_ends_many_single_requests_soon():
    with FaultyServer() as server:
        engine = ready(server, [status(500)] * 10_000, dialect="query")
        with pytest.raises(RetrievalError, match="failed 3 times"):
            engine.search([f"q{i}" for i in range(1000)], 1)
        assert len(server.requests) < 500


def test_a_refusal_is_not_repeated():
    with FaultyServer() as server:
        engine = ready(server, [status(404), status(422)])
        with pytest.raises(RetrievalError, match=r"refused the request: HTTP 404"):
            engine.search(["q"], 1)
        assert len(server.requests) == 1


def test_no_server():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/retrieve"
        with pytest.raises(RetrievalError, match="failed 3 times, the last with ConnectError"):
            client(url).search(["q"], 1)


def test_fewer_hits_than_asked_for_are_fewer_passages(play):
    with FaultyServer([body(found(["x"], 3)), body(found(["x"], 1)), body(b'{"result": [[]]}')]) as server:
        benchmark = make(retriever="http", url=server.url, attempts=1)
        pool = benchmark.pool(1)
        pool.reset([Task("t", "nq", {"question": "q?", "golden_answers": ["a"]})])
        (one,) = pool.step([(0, "<search>one</search>")])
        (none,) = pool.step([(0, "<search>none</search>")])
        assert one.observation.text.count("\n[") == 1
        assert "No passages were found." in none.observation.text
        assert none.measures["short_results"] == 2
        assert none.observation.keys == one.observation.keys  # nothing new: the same state


def test_several_servers_are_used_in_turn_and_one_may_fail():
    with FaultyServer() as one, FaultyServer([status(500)] * 2) as other:
        engine = client(one.url, other.url)
        for i in range(8):
            engine.search([f"q{i}"], 1)
        assert len(one.requests) > 3
        assert len(other.requests) > 3


def test_a_server_that_comes_back_with_other_passages_stops_the_run():
    with FaultyServer() as server:
        engine = client(server.url)
        engine.search(["q"], 1)
        server.faults = [status(500), body(found(["q"], 1, "e")), body(found(["probe"], 10, "e"))]
        with pytest.raises(RetrievalError, match="answers from other passages than before"):
            engine.search(["q"], 1)


def test_jitter_leaves_the_runs_random_numbers_alone():
    random.seed(3)
    expected = random.Random(3).random()
    with FaultyServer([status(500)]) as server:
        client(server.url).search(["q"], 1)
    assert random.random() == expected


def test_probe_says_what_is_odd(caplog):
    rising = json.dumps({"result": [[{"document": {"id": str(i), "contents": "x"}, "score": i} for i in range(2)]]})
    with FaultyServer([body(rising.encode())]) as server:
        client(server.url).probe(3)
    assert "found 2 passages of 3 asked for" in caplog.text
    assert "scores do not fall" in caplog.text


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "needs url="),
        ("localhost:8000", "must begin with http://"),
        ("http://", "no host"),
        ("http://here:port/retrieve", "Invalid port: 'port'"),
    ],
)
def test_wrong_urls(url, message, monkeypatch):
    monkeypatch.delenv(engines.URL_VARIABLE, raising=False)
    with pytest.raises(ValueError, match=message):
        make(retriever="http", url=url).check()


def test_the_address_may_stay_out_of_the_configuration(monkeypatch):
    with FaultyServer() as server:
        monkeypatch.setenv(engines.URL_VARIABLE, f"{server.url}, {server.url}")
        make(retriever="http").check()
        assert len(server.requests) == 1


# --- our own server ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bm25():
    return engines.build(Options(), "queries")


@pytest.fixture(scope="module")
def own(bm25):
    with OwnServer(Service(Limits(largest_batch=600, largest_k=20), bm25)) as server:
        yield server


@pytest.mark.parametrize("dialect", ["queries", "query"])
def test_our_server_answers_like_the_engine(own, bm25, dialect):
    asked = ["", "of the", *(question.text for question in questions.shipped("hotpotqa-mini"))]
    assert client(own.url, dialect=dialect).search(asked, 3) == bm25.search(asked, 3)


def test_more_queries_than_a_request_holds(own, bm25):
    asked = [f"{question.text} {i}" for i, question in enumerate(questions.shipped("2wiki-mini")[:1100])]
    assert client(own.url).search(asked, 2) == bm25.search(asked, 2)


def test_health_and_fingerprint(own, bm25):
    said = httpx.get(own.url.replace("retrieve", "health")).json()
    assert said["status"] == "ok"
    assert said["passages"] == 7_119
    assert said["fingerprint"] == bm25.fingerprint
    record = client(own.url).record()
    assert record["server"]["corpus"] == "hotpotqa-mini+2wiki-mini"
    assert record["fingerprint"] != ""


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        ({}, 422, "give either"),
        ({"queries": ["a"], "query": "b"}, 422, "give either"),
        ({"queries": "a"}, 422, "queries"),
        ({"queries": [1]}, 422, "queries.0"),
        ({"query": "a", "topk": 0}, 422, "topk"),
        ({"query": "a", "topk": 21}, 422, "at most 600 queries and topk 20"),
        ({"queries": ["a"] * 601}, 422, "at most 600 queries"),
        ({"query": "a", "topk": "3"}, 422, "topk"),
    ],
)
def test_our_server_refuses_in_one_line(own, request_, code, message):
    answer = httpx.post(own.url, json=request_)
    assert answer.status_code == code
    assert message in answer.json()["error"]


def test_without_scores_the_documents_stand_alone(own):
    answer = httpx.post(own.url, json={"queries": ["VIVA Media", "harbor"], "topk": 2}).json()["result"]
    assert [len(hits) for hits in answer] == [2, 2]
    assert answer[0][0]["title"] == "VIVA Media"
    assert answer[0][0]["contents"].startswith('"VIVA Media"\n')
    assert httpx.post(own.url, json={"query": "harbor"}).json()["result"][0][2]["id"]  # the default k


def test_a_server_that_is_loading_is_waited_for(bm25):
    service = Service(Limits())
    with OwnServer(service) as server:
        assert httpx.get(server.url.replace("retrieve", "health")).json()["status"] == "loading"
        assert httpx.post(server.url, json={"query": "x"}).status_code == 503
        timer = threading.Timer(0.1, service.load, [lambda: bm25])
        timer.start()
        assert client(server.url, attempts=200, pause=0.01, longest_pause=0.01).search(["VIVA Media"], 1)[0]
        timer.join()


def test_what_goes_wrong_while_loading_is_told():
    service = Service(Limits())
    service.load(lambda: engines.build(Options(corpus="/no/such/file"), "queries"))
    assert service.health()["status"] == "failed"
    assert "/no/such/file" in service.health()["problem"]


def test_requests_over_the_queue_get_503_and_clients_come_through():
    gate = threading.Event()

    class Slow:
        fingerprint = "slow"

        def search(self, queries, k):
            gate.wait(5)
            return [[] for _ in queries]

        def record(self):
            return {"fingerprint": "slow"}

    service = Service(Limits(queue=2, parallel=1), Slow())
    with OwnServer(service) as server:
        waiting = [threading.Thread(target=httpx.post, args=(server.url,), kwargs={"json": {"query": "x"}})
                   for _ in range(2)]  # fmt: skip
        for thread in waiting:
            thread.start()
        while service.waiting < 2:
            time.sleep(0.005)
        refused = httpx.post(server.url, json={"query": "x"})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        threading.Timer(0.1, gate.set).start()
        assert client(server.url, dialect="query", attempts=200, pause=0.01).search(["a"] * 20, 1) == [[]] * 20
        for thread in waiting:
            thread.join()


def test_an_engine_that_fails_is_a_500_and_the_server_goes_on():
    class Broken:
        fingerprint = "broken"

        def search(self, queries, k):
            raise MemoryError("out of memory")

        def record(self):
            return {}

    with OwnServer(Service(Limits(), Broken())) as server:
        assert httpx.post(server.url, json={"query": "x"}).status_code == 500
        assert httpx.get(server.url.replace("retrieve", "health")).json()["waiting"] == 0


def test_a_restarted_server_with_another_corpus_is_noticed_without_a_failure(bm25):
    worlds = engines.build(Options(data="search-worlds"), "queries")
    with OwnServer(Service(Limits(), bm25)) as server:
        engine = client(server.url)
        engine.search(["harbor"], 1)
        port = server.port
    with OwnServer(Service(Limits(), worlds), port), pytest.raises(RetrievalError, match="other passages than before"):
        engine.search(["harbor"], 1)
