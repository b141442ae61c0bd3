"""From the official JSON files to a store, streaming: memory grows with the vocabulary, not with the products."""

from __future__ import annotations

import errno
import glob
import hashlib
import itertools
import json
import math
import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.webshop import places, stream, tagging
from benchmarks.webshop import products as product_rows
from benchmarks.webshop.postings import PostingsWriter
from benchmarks.webshop.products import Product, RowError
from benchmarks.webshop.store import CATALOGUE, FORMAT, GOALS, MANIFEST, POSTINGS, SCHEMA

_BATCH = 512  # products tagged together
Progress = Callable[[int], None]


class BuildError(ValueError):
    """Files that make no catalogue; the message names the file, what is wrong and the way out."""


@dataclass(frozen=True)
class Sources:
    """The files of a catalogue: products, attributes and synthetic instructions, human instructions (or None)."""

    products: Path
    attributes: Path
    humans: Path | None

    @property
    def paths(self) -> list[Path]:
        """The files that are there."""
        return [path for path in (self.products, self.attributes, self.humans) if path is not None]


def recognize(files: Sequence[Path]) -> Sources:
    """Tell the files apart by what they hold, whatever their names.

    BuildError for a missing or foreign file, for two of a kind, and when products or attributes are absent.
    """
    found: dict[str, Path] = {}
    for path in files:
        kind = _kind(path)
        if kind in found:
            raise BuildError(f"{path} and {found[kind]} both hold {kind}; give one of them")
        found[kind] = path
    if "products" not in found:
        raise BuildError("no product file given (items_shuffle.json, or items_shuffle_1000.json)")
    if "attributes" not in found:
        raise BuildError(
            f"no ins file given for {found['products']} (items_ins_v2.json, or items_ins_v2_1000.json): it holds the "
            "products' attributes"
        )
    return Sources(found["products"], found["attributes"], found.get("human instructions"))


def _kind(path: Path) -> str:
    if not path.is_file():
        raise BuildError(f"{path}: no such file")
    try:
        start = stream.opening(path)
        if start == "[":
            first = next(stream.array(path), None)
            if isinstance(first, Mapping) and "asin" in first and "name" in first:
                return "products"
        elif start == "{":
            _, entry = next(stream.members(path), ("", None))
            if isinstance(entry, Mapping) and "attributes" in entry:
                return "attributes"
            if isinstance(entry, list):
                return "human instructions"
    except stream.FormatError as error:
        raise BuildError(str(error)) from None
    raise BuildError(f"{path}: not a WebShop file (products, attributes or human instructions expected)")


def build(
    files: Sequence[Path],
    out: Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    tagger: str = tagging.DEFAULT,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Build a store from files into the folder `out`; returns its manifest.

    `limit` takes that many rows, as the original's `num_products`, before rows are skipped. The folder appears when
    it is whole; after an error or an interrupt nothing is left. BuildError when `out` exists or the files do not fit.
    """
    out = Path(out)
    if out.exists():
        raise BuildError(f"{out} exists already; choose another folder or delete it")
    sources = recognize(files)
    chosen = tagging.tagger(tagger)
    out.parent.mkdir(parents=True, exist_ok=True)
    _sweep(out)
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.{os.getpid()}.", dir=out.parent))
    try:
        manifest = _Builder(staging, sources, chosen, limit, progress).run(name)
        staging.chmod(0o755)
        staging.rename(out)
    except (stream.FormatError, RowError) as error:
        raise BuildError(str(error)) from None
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise BuildError(f"{out} exists already; another process has just built it") from None
        raise BuildError(f"{out}: {error.strerror or error}") from None
    except sqlite3.OperationalError as error:
        raise BuildError(f"{out}: {error}") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


def _sweep(out: Path) -> None:
    """Remove what killed builds of this folder left; their process is in the name."""
    for left in out.parent.glob(f".{glob.escape(out.name)}.*.*"):
        pid = left.name.removeprefix(f".{out.name}.").partition(".")[0]
        if pid.isdecimal() and not _alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _Builder:
    def __init__(
        self, folder: Path, sources: Sources, tagger: tagging.Tagger, limit: int | None, progress: Progress | None
    ) -> None:
        self._folder, self._sources, self._tagger = folder, sources, tagger
        self._limit, self._progress = limit, progress
        self._database = sqlite3.connect(folder / CATALOGUE)
        self._database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + SCHEMA)
        self._side = sqlite3.connect(folder / "side.sqlite")
        self._side.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
        self._writer = PostingsWriter(folder)
        self._hash = hashlib.sha256(f"{FORMAT} {tagger.name}".encode())
        self._products = 0
        self._goals = dict.fromkeys(places.KINDS, 0)
        self._uses: Counter[str] = Counter()  # of attributes, by synthetic goals
        self._without_attributes = 0

    def run(self, name: str | None) -> dict[str, Any]:
        try:
            self._read_side_files()
            rows = self._rows()
            while batch := list(itertools.islice(rows, _BATCH)):
                self._add(batch)
            return self._finish(name)
        finally:
            self._database.close()
            self._side.close()

    def _read_side_files(self) -> None:
        """Attributes and instructions into a temporary database: the files are not in the products' order."""
        self._side.execute("CREATE TABLE entries (asin TEXT, kind TEXT, data TEXT, PRIMARY KEY (asin, kind))")
        files = {"attributes": self._sources.attributes, "human": self._sources.humans}
        for kind, path in files.items():
            if path is not None:
                rows = ((asin, kind, json.dumps(entry)) for asin, entry in stream.members(path))
                self._side.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)

    def _entry(self, asin: str, kind: str) -> Any:
        row = self._side.execute("SELECT data FROM entries WHERE asin = ? AND kind = ?", (asin, kind)).fetchone()
        return None if row is None else json.loads(row[0])

    def _rows(self) -> Iterator[Mapping[str, Any]]:
        """Rows that become products: the first of each ASIN."""
        self._side.execute("CREATE TABLE seen (asin TEXT PRIMARY KEY) WITHOUT ROWID")
        for number, raw in enumerate(itertools.islice(stream.array(self._sources.products), self._limit)):
            if product_rows.skipped(raw):
                continue
            try:
                row = product_rows.check(raw)
            except RowError as error:
                raise BuildError(f"{self._sources.products}: row {number}: {error}") from None
            if self._side.execute("INSERT OR IGNORE INTO seen VALUES (?)", (row["asin"],)).rowcount:
                yield row

    def _add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row, nouns in zip(rows, self._tagger.nouns(row["name"] for row in rows), strict=True):
            extra = self._extra(row["asin"])
            try:
                product = product_rows.clean(row, extra.get("attributes"), nouns)
                data = product.pack()
            except (AttributeError, KeyError, TypeError, UnicodeEncodeError) as error:
                source = self._sources.products
                raise BuildError(f"{source}: product {row['asin']} cannot be read ({error!r})") from None
            self._add_product(product, data, extra)
        if self._progress is not None:
            self._progress(self._products)

    def _extra(self, asin: str) -> Mapping[str, Any]:
        """What the ins file says about a product; empty where it says nothing."""
        extra = self._entry(asin, "attributes") or {}
        lists = ("attributes", "instruction_attributes")
        if not isinstance(extra, Mapping) or not all(_texts(extra[key]) for key in lists if extra.get(key) is not None):
            raise BuildError(f"{self._sources.attributes}: the entry of {asin} cannot be read")
        if not isinstance(extra.get("instruction"), str | None):
            raise BuildError(f"{self._sources.attributes}: the instruction of {asin} is no text")
        if "attributes" not in extra:
            self._without_attributes += 1
        return extra

    def _human(self, asin: str) -> Iterator[Mapping[str, Any]]:
        """People's instructions for a product that make goals."""
        entries = self._entry(asin, "human") or []
        for entry in entries if isinstance(entries, list) else [entries]:
            wanted = entry.get("instruction_attributes") if isinstance(entry, Mapping) else entry
            if isinstance(entry, Mapping) and not wanted:
                continue
            if not _texts(wanted) or not isinstance(entry.get("instruction"), str):
                raise BuildError(f"{self._sources.humans}: an instruction of {asin} cannot be read")
            if not _texts(entry.get("instruction_options") or []):
                raise BuildError(f"{self._sources.humans}: the options of an instruction of {asin} cannot be read")
            yield entry

    def _add_product(self, product: Product, data: bytes, extra: Mapping[str, Any]) -> None:
        position = self._products
        self._products += 1
        self._hash.update(data)
        self._database.execute(
            "INSERT INTO products VALUES (?, ?, ?, ?, ?)",
            (position, product.asin, product.category, product.query, data),
        )
        if len(product.prices) > 1:
            self._database.execute("INSERT INTO ranges VALUES (?, ?, ?)", (position, *product.prices))
        self._writer.add(product.indexed_text())
        self._add_goals(position, product, extra)

    def _add_goals(self, position: int, product: Product, extra: Mapping[str, Any]) -> None:
        for entry in self._human(product.asin):
            instruction, options = entry["instruction"].strip("."), entry.get("instruction_options") or []
            self._add_goal("human", position, product, instruction, entry["instruction_attributes"], options, 1)
        instruction, attributes = extra.get("instruction"), extra.get("instruction_attributes")
        if instruction is not None and attributes:
            variants = math.prod(len(values) for values in product.options.values())
            if variants:
                self._add_goal("synthetic", position, product, instruction, attributes, [], variants)

    def _add_goal(
        self,
        kind: str,
        position: int,
        product: Product,
        instruction: str,
        attributes: list[str],
        options: list[str],
        variants: int,
    ) -> None:
        data = json.dumps({"instruction": instruction, "attributes": attributes, "options": options})
        self._hash.update(data.encode())
        row = (kind, self._goals[kind], position, product.prices[0], product.prices[-1], variants, data)
        self._database.execute("INSERT INTO goals VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self._goals[kind] += 1
        if kind == "synthetic":
            for attribute in attributes:
                self._uses[attribute] += variants

    def _finish(self, name: str | None) -> dict[str, Any]:
        if not self._products:
            raise BuildError(f"{self._sources.products}: holds no product")
        if self._without_attributes == self._products:
            raise BuildError(
                f"{self._sources.attributes}: knows none of the products of {self._sources.products}; "
                "give the ins file that belongs to it"
            )
        stamp = self._hash.hexdigest()
        by_asin = self._database.execute("SELECT position FROM products ORDER BY asin")
        self._writer.write(self._folder / POSTINGS, stamp, (position for (position,) in by_asin))
        self._database.executemany("INSERT INTO terms VALUES (?, ?, ?)", self._writer.entries())
        places.write(self._folder / GOALS, stamp, {kind: self._variants(kind) for kind in places.KINDS})
        self._database.executemany("INSERT INTO uses VALUES (?, ?)", self._uses.items())
        self._database.executescript(
            "CREATE INDEX by_category ON products (category); CREATE INDEX by_query ON products (query);"
        )
        self._database.execute("INSERT INTO meta VALUES (?)", (stamp,))
        self._database.commit()
        (self._folder / "side.sqlite").unlink()
        manifest = self._manifest(stamp, name)
        (self._folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        return manifest

    def _variants(self, kind: str) -> Iterator[int]:
        """How many goals each source of a kind gives, in order."""
        found = self._database.execute("SELECT variants FROM goals WHERE kind = ? ORDER BY number", (kind,))
        return (variants for (variants,) in found)

    def _manifest(self, stamp: str, name: str | None) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "name": name or f"{self._products}-{stamp[:8]}",
            "stamp": stamp,
            "products": self._products,
            "without_attributes": self._without_attributes,
            "goals": self._goals,
            "tagger": self._tagger.name,
            "files": {path.name: path.stat().st_size for path in self._sources.paths},
        }


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, str) for element in value)
