"""Grid files: axes over any key, rules, and their expansion into cells. Pure: nothing is composed or written here.

    about: one line
    table: graft_table1                 the table that the grid regenerates, or null
    common: {protocol: paper_alfworld}  values of every cell
    axes:
      algorithm: [grpo, graft]          a list: values of that key (a group, a dotted key, seed)
      row:                              a mapping: label -> values; the labels of `row` name the table's rows
        full: {algorithm: graft}
      benchmark:                        for a group the label is also the choice
        webshop: {protocol: paper_webshop}
    set: [{match: {algorithm: graft}, values: {algorithm.options.gamma: 0.9}}]
    exclude: [{algorithm: grpo, seed: [2, 3]}]
    include: [{algorithm: gigpo}]       more cells; axes that are not named take all their values
    resources: [{match: {model: "*7b"}, gpus: 4, time: "24:00:00"}]    the first match counts

A match names axes and gives a value, a shell pattern, or a list of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from sweeps.config import CONF, GROUPS
from sweeps.schema import ConfigError, nearest

KEYS = ("about", "table", "common", "axes", "set", "exclude", "include", "resources")
ROW = "row"


@dataclass(frozen=True)
class GridCell:
    """One point of the grid: its label on every axis, the values it sets, and its job's resources as written."""

    axes: dict[str, Any]
    values: dict[str, Any]
    job: dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """A grid file, read and checked. `axes` holds for each axis its labels and what each sets."""

    name: str
    about: str = ""
    table: str | None = None
    common: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, dict[Any, dict[str, Any]]] = field(default_factory=dict)
    rules: tuple[dict[str, Any], ...] = ()
    exclude: tuple[dict[str, Any], ...] = ()
    include: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()

    def cells(self, overrides: Mapping[str, Any] | None = None) -> list[GridCell]:
        """All cells, one seed of everything before the next; `overrides` win over every value of the file."""
        points = [point for point in self._points() if not any(matches(point, rule) for rule in self.exclude)]
        points += [point for rule in self.include for point in self._included(rule)]
        seen: dict[str, dict[str, Any]] = {repr(sorted(point.items(), key=str)): point for point in points}
        cells = [self._cell(point, overrides or {}) for point in seen.values()]
        seeds = {repr(cell.values.get("seed")): place for place, cell in reversed(list(enumerate(cells)))}
        return sorted(cells, key=lambda cell: seeds[repr(cell.values.get("seed"))])

    def axis_values(self, axis: str, label: Any) -> dict[str, Any]:
        """What a label of an axis sets."""
        return self.axes[axis].get(label, {axis: label})

    def _points(self) -> Iterable[dict[str, Any]]:
        for labels in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, labels, strict=True))

    def _included(self, rule: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        choices = [_as_list(rule[axis]) if axis in rule else list(labels) for axis, labels in self.axes.items()]
        for labels in itertools.product(*choices):
            yield dict(zip(self.axes, labels, strict=True))

    def _cell(self, point: dict[str, Any], overrides: Mapping[str, Any]) -> GridCell:
        values = dict(self.common)
        for axis, label in point.items():
            values.update(self.axis_values(axis, label))
        for rule in self.rules:
            if matches(point, rule["match"]):
                values.update(rule["values"])
        values.update(overrides)
        job = next((rule for rule in self.resources if matches(point, rule.get("match", {}))), {})
        return GridCell(point, values, {key: value for key, value in job.items() if key != "match"})


def matches(point: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a point has, on every axis named, one of the wanted labels; texts are shell patterns."""
    return all(
        any(point[axis] == one or fnmatchcase(str(point[axis]), str(one)) for one in _as_list(value))
        for axis, value in wanted.items()
    )


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


# --- reading ----------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-6 is a number, as it is in Hydra's files and on the command line."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d[\d_]*(?:\.[\d_]*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def names(config_dir: str | Path | None = None) -> tuple[str, ...]:
    """Names of the shipped grids and of those in `config_dir`/grid."""
    return tuple(sorted({path.stem for folder in _folders(config_dir) for path in folder.glob("*.yaml")}))


def _folders(config_dir: str | Path | None) -> list[Path]:
    return [CONF / "grid"] + ([Path(config_dir) / "grid"] if config_dir else [])


def read(name: str, config_dir: str | Path | None = None) -> Grid:
    """The grid of this name, or in this file (`path/to/mine.yaml`). ConfigError, one line, for what is wrong in it."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else _find(name, config_dir)
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise ConfigError(f"grid {name}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"grid {path} is not YAML: {' '.join(str(error).split())}") from None
    return parse(path.stem, value)


def _find(name: str, config_dir: str | Path | None) -> Path:
    found = [folder / f"{name}.yaml" for folder in _folders(config_dir) if (folder / f"{name}.yaml").is_file()]
    if not found:
        known = names(config_dir)
        raise ConfigError(f"grid {name!r} does not exist{nearest(name, known)} (known: {', '.join(known)}; or a file)")
    return found[-1]


def parse(name: str, value: Any) -> Grid:
    """A grid from the contents of its file."""
    where = f"grid {name}"
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: the file must hold a mapping with `axes`")
    for key in value:
        if key not in KEYS:
            raise ConfigError(f"{where}: unknown key {key!r}{nearest(str(key), KEYS)} (known: {', '.join(KEYS)})")
    axes = {str(axis): _axis(where, str(axis), labels) for axis, labels in _mapping(where, "axes", value).items()}
    if not axes:
        raise ConfigError(f"{where}: axes must name at least one axis")
    return Grid(
        name=name,
        about=" ".join(str(value.get("about") or "").split()),
        table=_optional_text(where, "table", value),
        common=_values(f"{where}: common", _mapping(where, "common", value)),
        axes=axes,
        rules=tuple(_rule(where, axes, rule) for rule in _rules(where, "set", value)),
        exclude=tuple(_match(f"{where}: exclude", axes, rule) for rule in _rules(where, "exclude", value)),
        include=tuple(_included_rule(f"{where}: include", axes, rule) for rule in _rules(where, "include", value)),
        resources=tuple(_resources(where, axes, rule) for rule in _rules(where, "resources", value)),
    )


def _optional_text(where: str, key: str, value: Mapping[str, Any]) -> str | None:
    text = value.get(key)
    if text is not None and (not isinstance(text, str) or not text):
        raise ConfigError(f"{where}: {key} must be a name or null, got {text!r}")
    return text


def _mapping(where: str, key: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    found = value.get(key) or {}
    if not isinstance(found, Mapping):
        raise ConfigError(f"{where}: {key} must be a mapping, got {found!r}")
    return found


def _rules(where: str, key: str, value: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = value.get(key) or []
    if not isinstance(found, list) or not all(isinstance(rule, Mapping) for rule in found):
        raise ConfigError(f"{where}: {key} must be a list of mappings, got {found!r}")
    return found


def _axis(where: str, axis: str, labels: Any) -> dict[Any, dict[str, Any]]:
    """label -> values that it sets."""
    if not isinstance(labels, (list, Mapping)) or not labels:
        raise ConfigError(f"{where}: axis {axis!r} must be a list of values or a mapping of labels, got {labels!r}")
    if isinstance(labels, list):
        if axis == ROW:
            raise ConfigError(f"{where}: axis 'row' must map each label to the values it sets")
        if len({repr(label) for label in labels}) < len(labels):
            raise ConfigError(f"{where}: axis {axis!r} names one value twice: {labels}")
        if any(isinstance(label, (list, Mapping)) for label in labels):
            raise ConfigError(f"{where}: axis {axis!r} takes plain values; write label: {{key: value}} for others")
        return {label: {axis: label} for label in labels}
    own = {axis} if axis in GROUPS else set()
    return {
        label: {**dict.fromkeys(own, label), **_values(f"{where}: axis {axis!r}, {label!r}", values or {})}
        for label, values in labels.items()
    }


def _values(where: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{where} must map keys to values, got {values!r}")
    return dict(values)


def _match(where: str, axes: Mapping[str, Any], rule: Mapping[str, Any]) -> dict[str, Any]:
    for axis in rule:
        if axis not in axes:
            raise ConfigError(f"{where}: {axis!r} is not an axis{nearest(str(axis), axes)} (axes: {', '.join(axes)})")
    return dict(rule)


def _included_rule(where: str, axes: Mapping[str, Any], rule: Mapping[str, Any]) -> dict[str, Any]:
    """Named labels of a mapped axis must exist; a listed axis takes new ones."""
    for axis, value in _match(where, axes, rule).items():
        mapped = any(values != {axis: label} for label, values in axes[axis].items())
        for label in _as_list(value):
            if mapped and label not in axes[axis]:
                raise ConfigError(f"{where}: axis {axis!r} has no label {label!r}{nearest(str(label), axes[axis])}")
    return dict(rule)


def _rule(where: str, axes: Mapping[str, Any], rule: Mapping[str, Any]) -> dict[str, Any]:
    if set(rule) != {"match", "values"}:
        raise ConfigError(f"{where}: a rule of `set` has the keys match and values, got {', '.join(map(str, rule))}")
    matched = _match(f"{where}: set", axes, _mapping(where, "match", rule))
    return {"match": matched, "values": _values(f"{where}: set", rule["values"])}


def _resources(where: str, axes: Mapping[str, Any], rule: Mapping[str, Any]) -> dict[str, Any]:
    return {**rule, "match": _match(f"{where}: resources", axes, _mapping(where, "match", rule))}
