"""What a table is: a small YAML of panels, rows and columns, read and checked.

    title: My table
    lists: {alfworld: unseen_games}              # the evaluation list of each benchmark
    where: {protocol: quick}                     # conditions on the runs of the whole table
    rows:
      - {label: GRAFT, where: {algorithm: graft}, published: GRAFT}
    columns:
      - {use: alfworld}                          # a set of columns of conf/columns.yaml
      - {header: turns, benchmark: alfworld, metric: turns, better: lower}

A condition is a dotted key of a run's config (`algorithm`, `benchmark`, `model`, `protocol` stand for their names) and
a value, a list of values, or a mapping from benchmark to value. docs/analysis.md describes every key.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "conf"
NAMED_GROUPS = ("algorithm", "benchmark", "model", "protocol")
PUBLISHED_SUFFIX = " (published)"  # of the rows that hold a paper's numbers
SEEDS_KEY = "n"  # of the column that counts seeds
WHEN = ("last", "best", "before")
BETTER = ("higher", "lower", "none")

Condition = Mapping[str, Any]


class SpecError(ValueError):
    """A table's YAML that can't be used. The message is one line: which file, which key, what is possible."""


@dataclass(frozen=True)
class PanelSpec:
    """A block of rows: usually a model. `published` is the model's name in the published numbers."""

    title: str
    where: Condition
    published: str | None


@dataclass(frozen=True)
class RowSpec:
    """A method. `where` has alternatives, one of which a run must meet; None: nothing of ours stands in this row.
    `published` is the method's name in the published numbers."""

    label: str
    where: tuple[Condition, ...] | None
    published: str | None


@dataclass(frozen=True)
class ColumnSpec:
    """A measure. `kinds` are the kinds of tasks it counts (all of them when empty), `mean` says how: over episodes
    ("pooled") or over kinds ("macro"). `when` is the moment of a run: "last", "best" or "before"."""

    key: str
    header: str
    group: str
    benchmark: str | None
    metric: str
    kinds: tuple[str, ...]
    mean: str
    when: str
    unit: str
    scale: float
    digits: int | None
    better: str
    published: str | None
    where: Condition


@dataclass(frozen=True)
class TableSpec:
    """A table. `published` is (paper, table) in the published numbers; `seeds` those every cell should have;
    `lists` the evaluation list by benchmark; `grid` the sweep whose cells it shows. `narrowed` are conditions that a
    caller adds to those of the file."""

    name: str
    title: str
    grid: str
    published: tuple[str, str] | None
    seeds: tuple[int, ...]
    lists: Mapping[str, str]
    where: Condition
    panels: tuple[PanelSpec, ...]
    rows: tuple[RowSpec, ...]
    columns: tuple[ColumnSpec, ...]
    notes: tuple[str, ...]
    narrowed: Condition = field(default_factory=dict)


def table_names() -> tuple[str, ...]:
    """Names of the tables that come with the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "columns"))


def read_spec(name: str) -> TableSpec:
    """The table of this name, or of the YAML file at this path. SpecError when there is none or it is wrong."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file() or path.stem == "columns":
        near = difflib.get_close_matches(name, table_names(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SpecError(f"no table {name!r}{hint} (known: {', '.join(table_names())}; or the path of a YAML file)")
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    return _Reader(str(path)).table(path.stem, tree)


class _Reader:
    """Reads one file; every error names it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def table(self, name: str, tree: Any) -> TableSpec:
        keys = "title grid published seeds lists where panels rows columns notes"
        given = self._mapping("the file", tree, keys, required="title rows columns")
        columns = tuple(column for entry in self._list("columns", given["columns"]) for column in self._columns(entry))
        self._distinct("column", [f"{column.group}.{column.key}" for column in columns])
        self._one_set_of_runs(columns)
        rows = tuple(self._row(entry) for entry in self._list("rows", given["rows"]))
        self._distinct("row", [row.label for row in rows])
        panels = tuple(self._panel(entry) for entry in self._list("panels", given.get("panels") or [{"title": ""}]))
        self._distinct("panel", [panel.title for panel in panels])
        return TableSpec(
            name=name,
            title=str(given["title"]),
            grid=str(given.get("grid", name)),
            published=self._published(given.get("published")),
            seeds=self._seeds(given.get("seeds")),
            lists=self._condition("lists", given.get("lists")),
            where=self._condition("where", given.get("where")),
            panels=panels,
            rows=rows,
            columns=columns,
            notes=tuple(map(str, self._list("notes", given.get("notes") or []))),
        )

    def _published(self, entry: Any) -> tuple[str, str] | None:
        if entry is None:
            return None
        given = self._mapping("published", entry, "paper table", required="paper table")
        return str(given["paper"]), str(given["table"])

    def _panel(self, entry: Any) -> PanelSpec:
        given = self._mapping("a panel", entry, "title where published", required="title")
        return PanelSpec(
            str(given["title"]),
            self._condition("where", given.get("where")),
            _text_or_none(given.get("published")),
        )

    def _row(self, entry: Any) -> RowSpec:
        given = self._mapping("a row", entry, "label where published", required="label")
        where, label = given.get("where"), str(given["label"])
        if label.endswith(PUBLISHED_SUFFIX):
            raise SpecError(f"{self.path}: row {label!r}: names of published rows end so; choose another")
        if where is None and given.get("published") is None:
            raise SpecError(f"{self.path}: row {label!r} needs `where` (which runs) or `published` (which method)")
        alternatives = where if isinstance(where, list) else [where]
        conditions = tuple(self._condition(f"where of row {label!r}", one) for one in alternatives)
        return RowSpec(label, None if where is None else conditions, _text_or_none(given.get("published")))

    def _columns(self, entry: Any) -> Iterable[ColumnSpec]:
        if isinstance(entry, Mapping) and "use" in entry:
            given = self._mapping("a column", entry, "use only")
            chosen = self._set(str(given["use"]), given.get("only"))
            return [self._column(column) for column in chosen]
        return [self._column(entry)]

    def _set(self, name: str, only: Any) -> list[Any]:
        sets = yaml.safe_load((FOLDER / "columns.yaml").read_text(encoding="utf-8"))
        if name not in sets:
            raise SpecError(f"{self.path}: no set of columns {name!r} (known: {', '.join(sets)})")
        if only is None:
            return list(sets[name])
        by_key = {_key(column): column for column in sets[name]}
        for key in only:
            if key not in by_key:
                raise SpecError(f"{self.path}: columns {name!r} have no {key!r} (known: {', '.join(by_key)})")
        return [by_key[key] for key in only]

    def _column(self, entry: Any) -> ColumnSpec:
        keys = "key header group benchmark metric kinds mean when unit scale digits better published where"
        given = self._mapping("a column", entry, keys, required="header metric")
        header, benchmark = str(given["header"]), _text_or_none(given.get("benchmark"))
        if _key(given) == SEEDS_KEY:
            raise SpecError(f"{self.path}: column {header!r}: the column of seeds has key 'n'; give another `key`")
        return ColumnSpec(
            key=_key(given),
            header=header,
            group=str(given.get("group", benchmark or "")),
            benchmark=benchmark,
            metric=str(given["metric"]),
            kinds=tuple(map(str, self._list("kinds", given.get("kinds") or []))),
            mean=self._choice("mean", given.get("mean", "pooled"), ("pooled", "macro")),
            when=self._choice("when", given.get("when", "last"), WHEN),
            unit=str(given.get("unit", "%")),
            scale=self._number(f"scale of column {header!r}", given.get("scale", 1.0)),
            digits=self._digits(f"digits of column {header!r}", given.get("digits", 1)),
            better=self._choice("better", given.get("better", "higher"), BETTER),
            published=_text_or_none(given.get("published")),
            where=self._condition(f"where of column {header!r}", given.get("where")),
        )

    # --- checks

    def _mapping(self, what: str, value: Any, keys: str, required: str = "") -> Mapping[str, Any]:
        known = keys.split()
        if not isinstance(value, Mapping):
            raise SpecError(f"{self.path}: {what} must be a mapping with {', '.join(known)}; got {value!r}")
        for key in value:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise SpecError(f"{self.path}: {what} has no key {key!r}{hint} (known: {', '.join(known)})")
        for key in required.split():
            if key not in value:
                raise SpecError(f"{self.path}: {what} lacks {key!r}")
        return value

    def _list(self, what: str, value: Any) -> Sequence[Any]:
        if not isinstance(value, list):
            raise SpecError(f"{self.path}: {what} must be a list; got {value!r}")
        return value

    def _condition(self, what: str, value: Any) -> Condition:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise SpecError(f"{self.path}: {what} must be a mapping of keys to values; got {value!r}")
        return {full_key(str(key)): item for key, item in value.items()}

    def _choice(self, what: str, value: Any, known: tuple[str, ...]) -> str:
        if value not in known:
            raise SpecError(f"{self.path}: {what} must be one of {', '.join(known)}; got {value!r}")
        return str(value)

    def _seeds(self, value: Any) -> tuple[int, ...]:
        seeds = self._list("seeds", value or [])
        if not all(type(seed) is int for seed in seeds) or len(set(seeds)) < len(seeds):
            raise SpecError(f"{self.path}: seeds must be distinct whole numbers; got {value!r}")
        return tuple(sorted(seeds))

    def _number(self, what: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise SpecError(f"{self.path}: {what} must be a number; got {value!r}")
        return float(value)

    def _digits(self, what: str, value: Any) -> int | None:
        if value is not None and not (type(value) is int and value >= 0):
            raise SpecError(f"{self.path}: {what} must be a whole number or null; got {value!r}")
        return value

    def _one_set_of_runs(self, columns: Sequence[ColumnSpec]) -> None:
        """Columns of one group are read from the same runs."""
        first: dict[str, ColumnSpec] = {}
        for column in columns:
            other = first.setdefault(column.group, column)
            if (other.benchmark, other.where) != (column.benchmark, column.where):
                raise SpecError(
                    f"{self.path}: columns {other.header!r} and {column.header!r} of group {column.group!r} differ in "
                    "`benchmark` or `where`; give one of them a `group` of its own"
                )

    def _distinct(self, what: str, names: list[str]) -> None:
        for name in names:
            if names.count(name) > 1:
                raise SpecError(f"{self.path}: two {what}s are called {name!r}")


def full_key(key: str) -> str:
    """`algorithm` stands for `algorithm.name`, and so on."""
    return f"{key}.name" if key in NAMED_GROUPS else key


def slug(text: str) -> str:
    """A title as part of a column key."""
    return re.sub(r"[^a-z0-9.]+", "_", text.lower()).strip("_")


def _key(column: Mapping[str, Any]) -> str:
    return str(column.get("key") or slug(str(column["header"])))


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
