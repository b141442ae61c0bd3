"""What may stand in one table: names of methods, their order, and the refusal of runs that can't be compared."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from algorithms import baselines, estimators
from analysis.load import Runs

INITIAL = "initial"  # the policy before training, evaluated as it is
_SHARED = ("benchmark", "model", "protocol")  # what all methods of a comparison have in common
_HEADER = ("label", "list_hash", "count", "repeats", "temperature", "decoding", "horizon")


class ComparisonError(ValueError):
    """Runs that can't stand in one table. The message is one line: which runs, what differs."""


def trains(method: str) -> bool:
    """Whether a method, or the one that a variant is of, has updates to show: not the initial policy, no baseline."""
    return method.split(" (", 1)[0] not in (INITIAL, *baselines.METHODS)


def method_order(methods: Iterable[str]) -> tuple[str, ...]:
    """Distinct methods as tables list them: initial, the prompting baselines, the registry's order, then other names by
    alphabet. A variant such as "graft (gae_lambda=0.8)" stands at its method's place."""
    known = (INITIAL, *baselines.METHODS, *estimators())

    def place(method: str) -> tuple[int, str]:
        name = method.split(" (", 1)[0]
        return (known.index(name) if name in known else len(known), method)

    return tuple(sorted(set(methods), key=place))


def method_names(runs: Runs) -> pd.Series:
    """Name of each run's method, aligned with `runs.runs`: the algorithm, with the options that tell its variants
    apart where the set holds runs of one algorithm with different options."""
    settings = {run: own_settings(config["algorithm"]) for run, config in runs.configs.items()}
    siblings = runs.runs.groupby("algorithm", sort=False)["run"]
    varying = {algorithm: _varying([settings[run] for run in group]) for algorithm, group in siblings}
    names = []
    for run, algorithm in zip(runs.runs["run"], runs.runs["algorithm"], strict=True):
        knobs = ", ".join(f"{key}={_short(settings[run].get(key))}" for key in varying[algorithm])
        names.append(f"{algorithm} ({knobs})" if knobs else algorithm)
    return pd.Series(names, index=runs.runs.index, dtype=object)


def check_comparable(runs: Runs, lists: Sequence[str]) -> None:
    """ComparisonError unless there are runs, all share benchmark, model and protocol, every evaluation of a list was
    made the same way on the same data, and no method has two runs of one seed."""
    if not runs.configs:
        raise ComparisonError("no runs to compare")
    check_seeds(runs, method_names(runs))
    check_settings(runs)
    for name in lists:
        check_evaluations(runs, name)


def comparable_sets(runs: Runs) -> list[list[str]]:
    """Ids of the runs, one list for each set that has one benchmark, model and protocol; in order of first runs."""
    sets: dict[str, list[str]] = {}
    for run in runs.runs["run"]:
        shared = {key: runs.configs[run][key] for key in _SHARED}
        sets.setdefault(json.dumps(shared, sort_keys=True, default=str), []).append(run)
    return list(sets.values())


def own_settings(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """An algorithm's own knobs, flat."""
    own = {key: value for key, value in algorithm.items() if key not in ("name", "options", "by_benchmark")}
    return flat(own) | flat(algorithm.get("options") or {})


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping as {"a.b": value}."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return found


def _varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = sorted({key for setting in settings for key in setting})
    return [key for key in keys if len({_short(setting.get(key)) for setting in settings}) > 1]


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def check_seeds(runs: Runs, methods: pd.Series) -> None:
    """ComparisonError where a method has two runs of one seed."""
    named = runs.runs.assign(method=methods)
    for (method, seed), cell in named[named.duplicated(["method", "seed"], keep=False)].groupby(["method", "seed"]):
        first, second = cell["run"].iloc[:2]
        raise ComparisonError(f"runs {first} and {second} are both {method}, seed {seed}; leave one out")


def check_settings(runs: Runs, apart: Container[str] = ()) -> None:
    """ComparisonError unless all runs have one benchmark, model and protocol, and looked things up in one place
    (`fingerprints`; what a run does not say, because it crashed early, differs from nothing). Keys in `apart` may
    differ: they are what is compared."""
    shared = {run: flat({key: config[key] for key in _SHARED}) for run, config in runs.configs.items()}
    _check_equal({run: {k: v for k, v in setting.items() if k not in apart} for run, setting in shared.items()})
    _check_known(fingerprints(runs))


def fingerprints(runs: Runs) -> dict[str, dict[str, Any]]:
    """What each run's benchmark says about its retrieval: entries of the data's record and columns of evaluations and
    episodes whose names tell of a retrieval engine or a fingerprint. Runs that say nothing are left out."""
    found: dict[str, dict[str, Any]] = {}
    for run, data in zip(runs.runs["run"], runs.runs["data"], strict=True):
        said = {key: value for key, value in flat(json.loads(data)).items() if _tells_retrieval(key)}
        said = {key: value for key, value in said.items() if key.rpartition(".")[2] not in _ADDRESSES}
        if said:
            found[run] = said
    for column in filter(_tells_retrieval, runs.evaluations.columns):
        for run, value in runs.evaluations[["run", column]].dropna().itertuples(index=False):
            found.setdefault(run, {})[f"evaluation {column}"] = value
    for column in filter(_tells_retrieval, runs.episodes.columns):
        named = runs.episodes[["run", column]].dropna().drop_duplicates()
        for run, value in named[named[column].map(lambda value: isinstance(value, str))].itertuples(index=False):
            found.setdefault(run, {}).setdefault(f"episodes' {column}", value)
    return found


_ADDRESSES = ("url", "urls")  # one index may be served at several places: its fingerprint tells


def _tells_retrieval(name: str) -> bool:
    return "retriev" in name or "fingerprint" in name


def _check_equal(settings: Mapping[str, Mapping[str, Any]]) -> None:
    if not settings:
        return
    first, reference = next(iter(settings.items()))
    for run, setting in settings.items():
        differing = _varying([reference, setting]) if setting != reference else []
        if differing:
            raise _difference(first, run, differing[0], reference.get(differing[0]), setting.get(differing[0]))


def _check_known(settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Each key against the first run that has it."""
    known: dict[str, tuple[str, Any]] = {}
    for run, setting in settings.items():
        for key, value in sorted(setting.items()):
            first, reference = known.setdefault(key, (run, value))
            if _short(reference) != _short(value):
                raise _difference(first, run, key, reference, value)


def _difference(first: str, second: str, key: str, one: Any, other: Any) -> ComparisonError:
    return ComparisonError(
        f"runs {first} and {second} differ in {key} ({_short(one)} and {_short(other)}); make a table of each kind"
    )


def check_evaluations(runs: Runs, name: str) -> None:
    """ComparisonError unless every evaluation of list `name` was made the same way on the same data."""
    headers = runs.evaluations[runs.evaluations["list"] == name]
    for key in _HEADER:
        values = headers[key].map(_short)
        other = headers.loc[values != values.iloc[0]] if len(values) else headers
        if len(other):
            first, second = headers.iloc[0], other.iloc[0]
            raise ComparisonError(
                f"evaluations of {name} differ in {key}: {_short(_plain(first[key]))} in run {first['run']}, "
                f"{_short(_plain(second[key]))} in run {second['run']}; make a table of each kind"
            )


def _plain(value: Any) -> Any:
    """A numpy scalar as Python's own number."""
    return value.item() if hasattr(value, "item") else value
