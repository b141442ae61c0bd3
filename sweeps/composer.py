"""Many configurations at once: what `config.compose` gives, for thousands of cells a second.

Hydra composes each choice of a group once; groups are independent of each other before interpolation, so a cell is the
union of its choices. Interpolations are resolved once for all cells that agree on what interpolations can see, and the
other values are set in copies of the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from sweeps import config as configs
from sweeps.config import GROUPS, ConfigError

_DEFAULT = "(default)"


class _Tree(NamedTuple):
    """The union of chosen groups: unresolved values, its dotted keys, which keys interpolations may see, and the groups
    that hold no interpolation and are seen by none."""

    values: dict[str, Any]
    keys: frozenset[str]
    seen: Callable[[str], bool]
    alone: frozenset[str]


class Composer:
    """Configurations of one set of configuration folders, from typed values instead of override texts."""

    def __init__(self, config_dir: str | Path | None = None) -> None:
        self._extra = config_dir
        self._groups: dict[tuple[str, str], Any] = {}
        self._rest: dict[str, Any] = {}
        self._trees: dict[tuple[str, ...], _Tree] = {}
        self._templates: dict[str, dict[str, Any]] = {}

    def compose(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The resolved, checked configuration with these values: `{group: choice, "dotted.key": value}`.

        Equal to `config.compose` of the same overrides. Raises ConfigError as it does.
        """
        tree = self._tree(values)
        others = {key: value for key, value in values.items() if key not in GROUPS}
        for key in others:
            configs.check_key(key.lstrip("~"), tree.keys)
        seen = {key: value for key, value in others.items() if tree.seen(key)}
        template = self._template(values, seen, tree)
        config = _copy(template)
        for key, value in others.items():
            if key not in seen:
                _put(config, key, _copy(value))
        return configs.finish(config, tree.values)

    def _tree(self, values: Mapping[str, Any]) -> _Tree:
        chosen = tuple(str(values.get(group, _DEFAULT)) for group in GROUPS)
        if chosen not in self._trees:
            self._compose_groups({group: values[group] for group in GROUPS if group in values})
            tree = {
                **self._rest,
                **{group: self._groups[group, choice] for group, choice in zip(GROUPS, chosen, strict=True)},
            }
            keys = frozenset(configs.key_paths(tree))
            seen = _seen_by_interpolations(tree)
            alone = frozenset(group for group in GROUPS if not seen(group) and _is_plain(tree[group]))
            self._trees[chosen] = _Tree(tree, keys, seen, alone)
        return self._trees[chosen]

    def _compose_groups(self, wanted: Mapping[str, Any]) -> None:
        """One composition brings the choices that are not known yet, of all groups together."""
        new = {group: choice for group, choice in wanted.items() if (group, str(choice)) not in self._groups}
        defaults = [group for group in GROUPS if group not in wanted and (group, _DEFAULT) not in self._groups]
        if not new and not defaults:
            return
        composed = configs.unresolved([f"{group}={choice}" for group, choice in new.items()], self._extra)
        self._rest = {key: value for key, value in composed.items() if key not in GROUPS}
        for group in GROUPS:
            self._groups.setdefault((group, str(new.get(group, _DEFAULT))), composed[group])

    def _template(self, values: Mapping[str, Any], seen: Mapping[str, Any], tree: _Tree) -> dict[str, Any]:
        alone = tree.alone - {name.lstrip("~").partition(".")[0] for name in seen}
        groups = [(group, values.get(group, _DEFAULT)) for group in GROUPS if group not in alone]
        key = repr((groups, sorted(seen.items())))
        if key not in self._templates:
            changed = _copy({name: value for name, value in tree.values.items() if name not in alone})
            for name, value in seen.items():
                _put(changed, name, _copy(value))
            self._templates[key] = configs.resolve(OmegaConf.create(changed))
        found = {**self._templates[key], **{group: tree.values[group] for group in alone}}
        return {name: found[name] for name in tree.values if name in found}


def _seen_by_interpolations(tree: Mapping[str, Any]) -> Callable[[str], bool]:
    """A test: may some interpolation read this key, one below it, or a mapping that holds it? Or must it be given?"""
    missing = {key for key, value in configs.leaves(tree) if value == "???"}
    texts = [value for _, value in configs.leaves(tree) if isinstance(value, str) and "${" in value]
    words = {tuple(word.strip(".").split(".")) for word in re.findall(r"[A-Za-z_][\w.]*", " ".join(texts))}

    def test(key: str) -> bool:
        mine = tuple(key.lstrip("~").split("."))
        common = [(mine[: min(len(mine), len(word))], word[: min(len(mine), len(word))]) for word in words]
        return key.startswith("~") or key in missing or any(a == b for a, b in common)

    return test


def _is_plain(tree: Mapping[str, Any]) -> bool:
    """Whether resolving changes nothing: no interpolation, no table for one, nothing that must still be given."""
    texts = [value for _, value in configs.leaves(tree) if isinstance(value, str)]
    return not any("${" in text or text == "???" for text in texts) and not any(key.startswith("by_") for key in tree)


def _copy(tree: Any) -> Any:
    """A copy of mappings and lists; several times as fast as copy.deepcopy, which keeps track of cycles."""
    if isinstance(tree, dict):
        return {key: _copy(value) for key, value in tree.items()}
    return [_copy(value) for value in tree] if isinstance(tree, list) else tree


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set (or, for `~key`, take out) a dotted key."""
    *parents, last = key.lstrip("~").split(".")
    for part in parents:
        inner = tree.get(part)
        if not isinstance(inner, dict):
            inner = tree[part] = {}
        tree = inner
    if key.startswith("~"):
        if last not in tree:
            raise ConfigError(f"{key!r}: there is no such key to take out")
        del tree[last]
    else:
        tree[last] = value
