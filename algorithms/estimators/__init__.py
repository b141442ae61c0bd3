"""The registry of advantage estimators, and `estimate`.

A new estimator is one module here that defines `ESTIMATOR`; it is found by itself. Third parties register theirs from
outside: an entry point of group `creditbench.estimators` whose name is the estimator's and which loads an `Estimator`.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from algorithms.estimators.base import COMMON_OPTIONS, CommonOptions, Credit, Estimator, OptionError
from algorithms.estimators.diagnostics import signal_diagnostics
from algorithms.rollouts import RolloutBatch
from algorithms.states import Embed, encode

__all__ = [
    "COMMON_OPTIONS",
    "ENTRY_POINT_GROUP",
    "CommonOptions",
    "Credit",
    "Estimator",
    "EstimatorResult",
    "OptionError",
    "built_in",
    "estimate",
    "estimators",
    "options_type",
]

ENTRY_POINT_GROUP = "creditbench.estimators"
_TABLE_ORDER = ("grpo", "gigpo", "graphgpo", "g2po", "graphhca", "graft")


def _modules() -> dict[str, Estimator]:
    """Estimators of this package's modules: the papers' six in table order, then others by name."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found = {module.ESTIMATOR.name: module.ESTIMATOR for module in modules if hasattr(module, "ESTIMATOR")}
    return {name: found[name] for name in (*_TABLE_ORDER, *sorted(set(found) - set(_TABLE_ORDER)))}


_BUILT_IN = _modules()
_LOADED: dict[str, Estimator] = {}  # registered from outside, as far as asked for


@dataclass(frozen=True, eq=False)
class EstimatorResult:
    """advantages: float64 [rows], in the order of the batch. diagnostics: plain numbers, see `signal_diagnostics`."""

    advantages: np.ndarray
    diagnostics: Mapping[str, float]


def estimators() -> tuple[str, ...]:
    """Names of all estimators: the built-in ones in a fixed order, then registered ones, sorted."""
    return (*_BUILT_IN, *sorted(set(_registered()) - set(_BUILT_IN)))


def built_in() -> tuple[str, ...]:
    """Names of this package's modules, the papers' six first: what a comparison holds unless it names others."""
    return tuple(_BUILT_IN)


def options_type(name: str) -> type[CommonOptions]:
    """The frozen options dataclass of an estimator; its class defaults are the vetted setting."""
    return _estimator(name).options


def estimate(name: str, batch: RolloutBatch, *, embed: Embed | None = None, **options: Any) -> EstimatorResult:
    """One advantage per row of the batch, by the named estimator.

    embed    texts [n] -> vectors [n, dim], needed by `state_matching="embedding"` alone
    options  fields of `options_type(name)`; what is not given keeps its default

    Pure: no randomness, no input changed. Raises `OptionError` (a ValueError) for an unknown estimator or option,
    naming the nearest valid ones, and for a value out of range.
    """
    estimator = _estimator(name)
    settings = _settings(estimator, options)
    encoded = encode(batch, settings.state_matching, embed)
    credit = estimator.compute(encoded, settings)
    return EstimatorResult(batch.layout.unsort(credit.advantages), signal_diagnostics(encoded, credit))


def _settings(estimator: Estimator, options: Mapping[str, Any]) -> CommonOptions:
    valid = [f.name for f in dataclasses.fields(estimator.options)]
    for option in options:
        if option not in valid:
            raise OptionError(f"estimator {estimator.name!r} has no option {_nearest(option, valid)}")
    try:
        return estimator.options(**options)
    except OptionError as error:
        raise OptionError(f"estimator {estimator.name!r}: {error}") from None


def _estimator(name: str) -> Estimator:
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if name not in _LOADED:  # looking through the installed packages takes longer than many an estimate
        _LOADED[name] = _load(name)
    return _LOADED[name]


def _load(name: str) -> Estimator:
    entry = _registered().get(name)
    if entry is None:
        raise OptionError(f"there is no estimator {_nearest(name, estimators())}")
    loaded = entry.load()
    if not isinstance(loaded, Estimator):
        raise TypeError(
            f"entry point {ENTRY_POINT_GROUP}:{name} ({entry.value}) must be an Estimator, not {type(loaded).__name__}"
        )
    return loaded


def _registered() -> dict[str, importlib.metadata.EntryPoint]:
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}


def _nearest(name: str, valid: list[str] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, valid, n=2, cutoff=0.7)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return f"{name!r}; {hint}valid: {', '.join(valid)}"
