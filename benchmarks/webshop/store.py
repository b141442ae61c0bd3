"""A built catalogue: a folder that processes open in no time, share, and only read.

    manifest.json     what it is: name, stamp, counts, tagger, source files
    catalogue.sqlite  products, terms, goals, price ranges
    postings.bin      see `index`
    goals.bin         see `places`

The stamp, a hash over all that went in, stands in each of them.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.webshop.index import Index
from benchmarks.webshop.mapped import ForeignFile
from benchmarks.webshop.places import Places
from benchmarks.webshop.products import Product

FORMAT = 2
MANIFEST, CATALOGUE, POSTINGS, GOALS = "manifest.json", "catalogue.sqlite", "postings.bin", "goals.bin"
SCHEMA = """
CREATE TABLE meta (stamp TEXT);
CREATE TABLE products (position INTEGER PRIMARY KEY, asin TEXT UNIQUE, category TEXT, query TEXT, data BLOB);
CREATE TABLE terms (term TEXT PRIMARY KEY, first INTEGER, number INTEGER) WITHOUT ROWID;
CREATE TABLE goals (kind TEXT, number INTEGER, position INTEGER, low REAL, high REAL, variants INTEGER, data TEXT,
  PRIMARY KEY (kind, number)) WITHOUT ROWID;
CREATE TABLE uses (attribute TEXT PRIMARY KEY, goals INTEGER) WITHOUT ROWID;
CREATE TABLE ranges (position INTEGER PRIMARY KEY, low REAL, high REAL);
"""
_SOURCES = "SELECT number, position, low, high, variants, data FROM goals"
_KEPT = 512  # products in memory, about 3 kB each


class StoreError(ValueError):
    """A folder that is not a whole catalogue of this version; the message names it and the way out."""


@dataclass(frozen=True)
class GoalSource:
    """What goals of one product are made from. `low` and `high` are the ends of its price (equal for one price);
    `variants` counts the goals it gives: one, or every combination of options for a synthetic instruction."""

    number: int
    position: int
    low: float
    high: float
    variants: int
    instruction: str
    attributes: list[str]
    options: list[str]


class Store:
    """A catalogue that is only read. Open it once a process; it may be used by several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.manifest = _manifest(self.folder)
        self.stamp: str = self.manifest["stamp"]
        self._lock = threading.RLock()
        self._kept: OrderedDict[int, Product] = OrderedDict()
        self._pid = -1
        try:
            found = self._one("SELECT stamp FROM meta")
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.folder / CATALOGUE}: cannot be read ({error}); build it again") from None
        if not found or found[0] != self.stamp:
            raise StoreError(f"{self.folder / CATALOGUE}: belongs to another catalogue; build it again")
        try:
            self.index = Index(self.folder / POSTINGS, self.stamp, self._term)
            self.places = Places(self.folder / GOALS, self.stamp)
        except FileNotFoundError as error:
            raise StoreError(f"{error.filename}: is missing; build the catalogue again") from None
        except ForeignFile as error:
            raise StoreError(str(error)) from None

    def __len__(self) -> int:
        return int(self.manifest["products"])

    @property
    def name(self) -> str:
        """The catalogue's name, part of every label."""
        return str(self.manifest["name"])

    def product(self, position: int) -> Product:
        """The product at a position of the catalogue's order."""
        with self._lock:
            product = self._kept.get(position)
            if product is not None:
                return product
            row = self._one("SELECT data FROM products WHERE position = ?", position)
            if row is None:
                raise IndexError(f"{self.name} has no product {position}")
            product = self._kept[position] = Product.unpack(row[0])
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return product

    def position(self, asin: str) -> int | None:
        """Where the product with this ASIN stands; None for an unknown one."""
        row = self._one("SELECT position FROM products WHERE asin = ?", asin)
        return None if row is None else int(row[0])

    def positions(self, column: str, value: str) -> list[int]:
        """Positions of all products of a `category` or `query`, in order."""
        if column not in ("category", "query"):
            raise ValueError(f"products cannot be listed by {column!r}")
        rows = self._all(f"SELECT position FROM products WHERE {column} = ? ORDER BY position", value)
        return [row[0] for row in rows]

    def products(self) -> Iterator[Product]:
        """All products in order, from the disk."""
        for (data,) in self._connection.execute("SELECT data FROM products ORDER BY position"):
            yield Product.unpack(data)

    def ranges(self) -> Iterator[tuple[int, float, float]]:
        """(position, low, high) of every product whose price is a range, in order."""
        yield from self._connection.execute("SELECT position, low, high FROM ranges ORDER BY position")

    def goal_sources(self, kind: str) -> Iterator[GoalSource]:
        """Sources of "human" or "synthetic" goals, in the catalogue's order, from the disk."""
        for row in self._connection.execute(f"{_SOURCES} WHERE kind = ? ORDER BY number", (kind,)):
            yield _source(row)

    def goal_source(self, kind: str, number: int) -> GoalSource:
        """One of `goal_sources`. IndexError for a number that it does not have."""
        row = self._one(f"{_SOURCES} WHERE kind = ? AND number = ?", kind, number)
        if row is None:
            raise IndexError(f"{self.name} has no {kind} goal source {number}")
        return _source(row)

    def uses(self, attribute: str) -> int:
        """How many synthetic goals ask for an attribute."""
        row = self._one("SELECT goals FROM uses WHERE attribute = ?", attribute)
        return 0 if row is None else int(row[0])

    @cached_property
    def size(self) -> int:
        """Bytes on disk."""
        return sum((self.folder / name).stat().st_size for name in (MANIFEST, CATALOGUE, POSTINGS, GOALS))

    def _term(self, term: str) -> tuple[int, int] | None:
        row = self._one("SELECT first, number FROM terms WHERE term = ?", term)
        return None if row is None else (row[0], row[1])

    @property
    def _connection(self) -> sqlite3.Connection:
        """One connection a process: SQLite's must not cross a fork."""
        if self._pid != os.getpid():
            path = (self.folder / CATALOGUE).resolve()
            self._open = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
            self._pid = os.getpid()
        return self._open

    def _one(self, statement: str, *values: Any) -> Any:
        with self._lock:
            return self._connection.execute(statement, values).fetchone()

    def _all(self, statement: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()


def _source(row: tuple[Any, ...]) -> GoalSource:
    return GoalSource(*row[:5], **json.loads(row[5]))


def _manifest(folder: Path) -> dict[str, Any]:
    way_out = f"build it with `creditbench data webshop build FILES --out {folder}`"
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; {way_out}")
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise StoreError(f"{folder}: not a built WebShop catalogue; {way_out}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or "stamp" not in manifest:
        raise StoreError(f"{folder}: a catalogue of another version; build it again")
    if not (folder / CATALOGUE).is_file():
        raise StoreError(f"{folder / CATALOGUE}: is missing; build the catalogue again")
    return manifest
