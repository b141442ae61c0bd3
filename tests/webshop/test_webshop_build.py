"""Catalogues: streaming, errors, nothing half built, what a store refuses."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.webshop import build as building
from benchmarks.webshop import stream, tagging
from benchmarks.webshop.build import BuildError, build
from benchmarks.webshop.generator import MADE
from benchmarks.webshop.products import read_price
from benchmarks.webshop.store import CATALOGUE, GOALS, MANIFEST, POSTINGS, Store, StoreError
from sweeps.cli import main

Rows = Callable[..., list[dict[str, Any]]]
Files = Callable[..., list[Path]]


@pytest.mark.parametrize(
    ("text", "prices", "tag"),
    [
        ("$12.99", (12.99,), "$12.99"),
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
        ("$1,299.00", (1299.0,), "$1299.0"),
        ("$7.99 - $15.49", (7.99, 15.49), "$7.99 to $15.49"),
        ("$18.75 ($0.50 / Ounce)", (18.75, 0.5), "$18.75 to $0.5"),
        ("free", (100.0,), "$100.0"),
        ("$ each", (100.0,), "$100.0"),
    ],
)
def test_prices(text: str | None, prices: tuple[float, ...], tag: str) -> None:
    assert read_price(text) == (prices, tag)


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_streams_equal_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(stream, "CHUNK", chunk)
    value = [1, -2.5e3, "a\\u00e9\\n]", {"b": [None, True, {}]}, [], "", 12345]
    path = tmp_path / "a.json"
    path.write_text(f" \n{json.dumps(value)}\n ", encoding="utf-8")
    assert list(stream.array(path)) == value
    path.write_text(json.dumps({"k": value, "": 1}), encoding="utf-8")
    assert list(stream.members(path)) == [("k", value), ("", 1)]


@pytest.mark.parametrize("text", ["", "[", "[1", "[1,", "[1 2]", "[1]]", '["a', "{", "[1}", "[,]"])
def test_broken_streams(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(stream.FormatError, match=r"a\.json: character \d+"):
        list(stream.array(path))


def test_build_and_open(tmp_path: Path, rows: Rows, files: Files) -> None:
    made = [*rows(30), *rows(2), *rows(1, asin="nan"), *rows(1, asin="TOOLONGASIN")]
    manifest = build(files(made), tmp_path / "store")
    store = Store(tmp_path / "store")
    assert len(store) == manifest["products"] == 30
    assert store.product(3).title == "Maker Wooden Chair 3"
    assert store.position("P0003") == 3
    assert store.position("nan") is None
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == [CATALOGUE, GOALS, MANIFEST, POSTINGS]


def test_the_limit_counts_rows_before_any_is_skipped(tmp_path: Path, rows: Rows, files: Files) -> None:
    made = [*rows(2), *rows(1), *rows(5)]
    assert build(files(made), tmp_path / "store", limit=4)["products"] == 2


def test_equal_files_make_equal_catalogues(tmp_path: Path, rows: Rows, files: Files) -> None:
    one = build(files(rows(9)), tmp_path / "one")
    two = build(files(rows(9)), tmp_path / "two")
    other = build(files(rows(9, pricing="$21.00")), tmp_path / "three")
    assert one == two
    assert one["stamp"] != other["stamp"]
    for name in (POSTINGS, GOALS):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def _refused(tmp_path: Path, paths: list[Path], match: str) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BuildError, match=match):
        build(paths, tmp_path / "store")
    assert sorted(tmp_path.iterdir()) == before


def test_cut_off_product_file(tmp_path: Path, rows: Rows, files: Files) -> None:
    paths = files(rows(2000))
    paths[0].write_bytes(paths[0].read_bytes()[:-200])
    _refused(tmp_path, paths, "products.json: .*cut off")


def test_missing_and_foreign_files(tmp_path: Path, rows: Rows, files: Files) -> None:
    products, ins = files(rows(5))
    _refused(tmp_path, [products], "no ins file")
    _refused(tmp_path, [ins], "no product file")
    _refused(tmp_path, [products, tmp_path / "absent.json"], "absent.json: no such file")
    _refused(tmp_path, [products, products, ins], "both hold products")
    foreign = tmp_path / "foreign.json"
    for content in (b"[1, 2]", b"\xff\xfe\x00", b"", b"hello", b'{"a": 1}', b"[{}]"):
        foreign.write_bytes(content)
        _refused(tmp_path, [foreign, ins], "foreign.json")


def test_ins_file_of_other_products(tmp_path: Path, rows: Rows, files: Files) -> None:
    products, ins = files(rows(5))
    ins.write_text(json.dumps({"X1": {"attributes": []}}), encoding="utf-8")
    _refused(tmp_path, [products, ins], "knows none of the products")


def test_a_row_that_is_no_product(tmp_path: Path, rows: Rows, files: Files) -> None:
    made = rows(5)
    paths = files(made)
    del made[3]["query"]
    paths[0].write_text(json.dumps(made), encoding="utf-8")
    _refused(tmp_path, paths, "row 3: a product needs a text 'query'")


def test_skipped_rows_may_hold_anything(tmp_path: Path, rows: Rows, files: Files) -> None:
    paths = files(rows(5))
    made = [*rows(5), {"asin": "nan", "name": None}, {"asin": "TOOLONGASIN", "query": None}]
    paths[0].write_text(json.dumps(made), encoding="utf-8")
    assert build(paths, tmp_path / "store")["products"] == 5


@pytest.mark.parametrize(
    "entries",
    [
        ["x"], [{"instruction_attributes": ["oak"]}], [{"instruction_attributes": ["oak"], "instruction": None}],
        [{"instruction_attributes": "oak", "instruction": "buy"}],
        [{"instruction_attributes": ["oak"], "instruction": "buy", "instruction_options": {"size": "s"}}],
    ],
)  # fmt: skip
def test_instructions_that_are_none(tmp_path: Path, rows: Rows, files: Files, entries: list[Any]) -> None:
    paths = [*files(rows(5)), tmp_path / "humans.json"]
    paths[2].write_text(json.dumps({"P0003": entries}), encoding="utf-8")
    _refused(tmp_path, paths, "humans.json: .* of P0003 cannot be read")


@pytest.mark.parametrize("entry", [["x"], {"attributes": "oak"}, {"attributes": ["oak"], "instruction": 5}])
def test_attributes_that_are_none(tmp_path: Path, rows: Rows, files: Files, entry: Any) -> None:
    products, ins = files(rows(5))
    ins.write_text(json.dumps({"P0000": {"attributes": []}, "P0003": entry}), encoding="utf-8")
    _refused(tmp_path, [products, ins], "ins.json: .* of P0003")


def test_texts_that_cannot_be_written(tmp_path: Path, rows: Rows, files: Files) -> None:
    _refused(tmp_path, files(rows(2, name="a \ud800 chair")), "product P0000 cannot be read")


def test_an_element_without_end_is_not_read_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK", 100)
    monkeypatch.setattr(stream, "LONGEST", 1000)
    path = tmp_path / "a.json"
    path.write_text('[{"a": 1}, {"b": \\x' + ", " * 50_000 + "}]", encoding="utf-8")
    with pytest.raises(stream.FormatError, match=r"a\.json: character \d+: no whole element in 1000 characters"):
        list(stream.array(path))


def test_no_overwriting(tmp_path: Path, rows: Rows, files: Files) -> None:
    paths = files(rows(5))
    build(paths, tmp_path / "store")
    _refused(tmp_path, paths, "exists already")


def test_a_killed_build_leaves_no_catalogue_and_the_next_cleans_up(tmp_path: Path, rows: Rows, files: Files) -> None:
    paths = files(rows(5))
    script = (
        "import os, sys; from pathlib import Path; from benchmarks.webshop import build, postings\n"
        "postings.PostingsWriter.write = lambda *a: os._exit(9)\n"
        "build.build([Path(p) for p in sys.argv[2:]], Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "store"), *map(str, paths)], check=False)
    assert done.returncode == 9
    assert not (tmp_path / "store").exists()
    assert list(tmp_path.glob(".store.*"))
    build(paths, tmp_path / "store")
    assert not list(tmp_path.glob(".store.*"))
    assert len(Store(tmp_path / "store")) == 5


def test_an_interrupt_leaves_nothing(tmp_path: Path, rows: Rows, files: Files) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    paths = files(rows(5))
    with pytest.raises(KeyboardInterrupt):
        build(paths, tmp_path / "store", progress=interrupt)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ins.json", "products.json"]


def test_stores_that_are_none(tmp_path: Path, rows: Rows, files: Files) -> None:
    build(files(rows(5)), tmp_path / "one")
    build(files(rows(6)), tmp_path / "two")
    with pytest.raises(StoreError, match="no such folder"):
        Store(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="not a built WebShop catalogue"):
        Store(tmp_path / "empty")
    for name in (POSTINGS, CATALOGUE, GOALS):
        mixed = tmp_path / f"mixed-{name}"
        shutil.copytree(tmp_path / "one", mixed)
        shutil.copy(tmp_path / "two" / name, mixed / name)
        with pytest.raises(StoreError, match="another catalogue"):
            Store(mixed)
        (mixed / name).unlink()
        with pytest.raises(StoreError, match="is missing"):
            Store(mixed)
    (tmp_path / "one" / CATALOGUE).write_bytes(b"no database")
    with pytest.raises(StoreError, match="cannot be read"):
        Store(tmp_path / "one")


def test_a_store_is_only_read(tmp_path: Path, rows: Rows, files: Files) -> None:
    build(files(rows(5)), tmp_path / "store")
    store = Store(tmp_path / "store")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        store._connection.execute("DELETE FROM products")


def test_a_store_works_after_a_fork(tmp_path: Path, rows: Rows, files: Files) -> None:
    build(files(rows(5)), tmp_path / "store")
    store = Store(tmp_path / "store")
    assert store.product(0).asin == "P0000"
    child = os.fork()
    if child == 0:
        good = store.product(4).asin == "P0004" and len(store.index.search("chair", 9)) == 5
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_taggers(tmp_path: Path) -> None:
    titles = ["Oak Wooden Chairs for the Garden"]
    assert next(tagging.tagger("rules").nouns(titles)) == ["oak", "wooden", "chairs", "garden"]
    table = tmp_path / "nouns.json"
    table.write_text(json.dumps({titles[0]: ["chairs"]}), encoding="utf-8")
    found = tagging.tagger(f"table:{table}")
    assert list(found.nouns([*titles, "A Lamp"])) == [["chairs"], ["lamp"]]
    assert found.name == "table-nouns"
    table.write_text(json.dumps({"A Lamp": []}), encoding="utf-8")
    assert list(tagging.tagger(f"table:{table}").nouns(["A Lamp"])) == [[]]  # a title without nouns is known to be so
    for content in ([], {"A Lamp": "lamp"}, {"A Lamp": None}):
        table.write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(tagging.TaggerError, match="no table of nouns"):
            tagging.tagger(f"table:{table}")
    for name, match in (("nltk", "known: rules"), ("table:/nowhere", "no table"), ("spacy:", "unknown tagger")):
        with pytest.raises(tagging.TaggerError, match=match):
            tagging.tagger(name)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [str(MADE / name) for name in ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")]
    out = tmp_path / "store"
    assert main(["data", "webshop", "build", *made, "--out", str(out), "--name", "sixty"]) == 0
    assert "60 products (1 without attributes), 39 human and 44 synthetic" in capsys.readouterr().out
    assert main(["data", "webshop", "report", "--data", str(out), "--split", "test"]) == 0
    assert "webshop-sixty-human-fixed" in capsys.readouterr().out
    assert main(["data", "webshop", "build", made[0], "--out", str(tmp_path / "other")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["data", "webshop", "report", "--data", str(tmp_path)]) == 2
    assert not (tmp_path / "other").exists()


def test_recognize_goes_by_content(tmp_path: Path) -> None:
    renamed = [tmp_path / name for name in ("x", "y", "z")]
    for path, name in zip(renamed, ("items_human_ins.json", "items_ins_v2.json", "items_shuffle.json"), strict=True):
        shutil.copy(MADE / name, path)
    assert building.recognize(renamed) == building.Sources(renamed[2], renamed[1], renamed[0])
