"""Figures of final scores: subtasks, hyperparameter sensitivity, performance profiles, probability of improvement."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from analysis.comparable import INITIAL, ComparisonError, check_evaluations, method_order, own_settings
from analysis.figures import finish, looks, new_figure, not_drawn, setting
from analysis.load import Runs
from analysis.published import published
from analysis.resampling import bootstrap, improvement, improvement_interval, iqm, mean, profile
from analysis.scores import kind_names, list_names
from analysis.stats import RANKING_SEEDS, mean_std

SEED = 0  # of the bootstrap: equal runs give equal figures
LEVELS = np.linspace(0, 100, 101)
_ALIASES = {"lambda": "gae_lambda", "w": "step_weight"}  # names of options in the published rows
_SWEEPS = (("GRAFT", "table4"), ("GraphHCA", "table3"), ("GraphHCA", "table4"), ("GraphHCA", "table5"),
           ("GraphHCA", "table6"))  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """Success in percent, by method [seeds, kinds], on one evaluation list after training; `kinds` has "" alone where
    the benchmark has none."""

    name: str
    kinds: tuple[str, ...]
    by_method: Mapping[str, np.ndarray]
    left_out: list[str]


def final_scores(runs: Runs, methods: pd.Series, name: str | None = None) -> Scores:
    """Scores on list `name`, by default the first list that isn't of training tasks (else the first).

    Raises ComparisonError for a list that no run has, or that runs were evaluated on in other ways.
    """
    known = list_names(runs)
    if name is not None and name not in known:
        raise ComparisonError(f"no evaluation list {name!r} in these runs (known: {', '.join(known) or 'none'})")
    chosen = name or next((one for one in known if not one.startswith("training")), known[0] if known else "")
    check_evaluations(runs, chosen)
    frame = runs.runs.assign(method=methods)
    frame = frame[frame["method"] != INITIAL].sort_values("seed", kind="stable")
    episodes = runs.episodes[(runs.episodes["list"] == chosen) & (runs.episodes["when"] == "after")]
    kinds = kind_names(episodes["kind"]) or ("",)
    rates = 100 * episodes.astype({"success": float}).groupby(["run", "kind"])["success"].mean().unstack("kind")
    found, left_out = {}, []
    for method in method_order(frame["method"]):
        rows = frame[frame["method"] == method]
        done = [run for run in rows.loc[rows["state"] == "done", "run"] if run in rates.index]
        whole = rates.reindex(done)[list(kinds)].dropna() if done else pd.DataFrame()
        if len(whole):
            found[method] = whole.to_numpy(dtype=float)
        absent = rows[~rows["run"].isin(whole.index)]
        left_out += [
            f"{method} seed {row.seed} ({'not evaluated' if row.state == 'done' else row.state})"
            for row in absent.itertuples()
        ]
    return Scores(chosen, kinds, found, left_out)


def subtasks(runs: Runs, methods: pd.Series, name: str | None = None) -> tuple[Figure, list[str]]:
    """Success by kind of task, a bar a method; whiskers are the sample standard deviation over seeds."""
    scores = final_scores(runs, methods, name)
    figure = new_figure(max(5.0, 0.9 * len(scores.kinds) + 2.0), 3.4)
    axes = figure.subplots()
    names = list(scores.by_method)
    width = 0.8 / max(len(names), 1)
    for place, (method, look) in enumerate(zip(names, looks(names), strict=True)):
        array = scores.by_method[method]
        at = np.arange(len(scores.kinds)) + (place - (len(names) - 1) / 2) * width
        spread = array.std(axis=0, ddof=1) if len(array) > 1 else None
        axes.bar(
            at, array.mean(axis=0), width, yerr=spread, color=look["color"], label=f"{method} (n={len(array)})",
            edgecolor="white", linewidth=0.5, error_kw={"linewidth": 0.8},
        )  # fmt: skip
    axes.set_xticks(range(len(scores.kinds)), [kind or "all tasks" for kind in scores.kinds])
    axes.set(ylim=(0, 103), ylabel="success")
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    axes.grid(axis="x", visible=False)
    finish(figure, [axes], f"{_on(runs, scores)} Whiskers: std over seeds.{not_drawn(scores.left_out)}")
    return figure, scores.left_out


def performance_profiles(runs: Runs, methods: pd.Series, name: str | None = None) -> tuple[Figure, list[str]]:
    """Left: mean and IQM with 95 % intervals. Right: share of (seed, kind) scores above each level, with pointwise
    intervals; a higher curve is better (Agarwal et al. 2021)."""
    scores, rng = final_scores(runs, methods, name), np.random.default_rng(SEED)
    figure = new_figure(8.0, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
    names = list(scores.by_method)
    for place, (method, look) in enumerate(zip(names, looks(names), strict=True)):
        array = scores.by_method[method]
        for shift, statistic, face in ((-0.12, iqm, look["color"]), (0.12, mean, "white")):
            value, (low, high) = float(statistic(array)), bootstrap(array, statistic, rng)
            left.plot([low, high], [place + shift] * 2, color=look["color"], linewidth=1.4)
            left.plot(value, place + shift, look["marker"], color=look["color"], markerfacecolor=face, markersize=5.5)
        right.plot(LEVELS, profile(array, LEVELS), label=f"{method} (n={len(array)})", linewidth=1.6, **_line(look))
        right.fill_between(LEVELS, *_band(array, rng), color=look["color"], alpha=0.12, linewidth=0)
    left.set_yticks(range(len(names)), names)
    left.set_ylim(max(len(names), 1) - 0.5, -0.5)
    left.set(xlabel="success, %: IQM (full), mean (hollow)")
    right.set(xlabel="level, %", ylabel="share of scores above", ylim=(-0.02, 1.02))
    text = (
        f"{_on(runs, scores)} A score: one kind of tasks of one seed. Intervals: 95 %, stratified bootstrap over seeds."
    )
    finish(figure, [right, left], text + _few(scores) + not_drawn(scores.left_out))
    return figure, scores.left_out


def _band(array: np.ndarray, rng: np.random.Generator, draws: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Pointwise 95 % interval of a profile: seeds drawn for each kind apart."""
    chosen = rng.integers(len(array), size=(draws, *array.shape))
    drawn = np.sort(array[chosen, np.arange(array.shape[1])].reshape(draws, -1), axis=1)
    above = np.stack([1 - np.searchsorted(row, LEVELS, side="right") / drawn.shape[1] for row in drawn])
    low, high = np.quantile(above, [0.025, 0.975], axis=0)
    return low, high


def probability_of_improvement(runs: Runs, methods: pd.Series, name: str | None = None) -> tuple[Figure, list[str]]:
    """For each pair of methods the probability that a run of the first scores above a run of the second, mean over
    kinds, with 95 % intervals (Agarwal et al. 2021). An interval that holds 50 % tells nothing."""
    scores, rng = final_scores(runs, methods, name), np.random.default_rng(SEED)
    pairs = list(combinations(list(scores.by_method)[::-1], 2))
    figure = new_figure(6.0, 0.27 * max(len(pairs), 2) + 1.5)
    axes = figure.subplots()
    color = dict(zip(scores.by_method, (look["color"] for look in looks(list(scores.by_method))), strict=True))
    for place, (first, second) in enumerate(pairs):
        a, b = scores.by_method[first], scores.by_method[second]
        low, high = improvement_interval(a, b, rng)
        axes.plot([100 * low, 100 * high], [place, place], color=color[first], linewidth=1.6)
        axes.plot(100 * improvement(a, b), place, "o", color=color[first], markersize=5)
    if pairs:
        axes.axvline(50, color="0.5", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(pairs)), [f"{first} > {second}" for first, second in pairs])
    axes.set_ylim(max(len(pairs), 1) - 0.5, -0.5)
    axes.set(xlim=(-2, 102), xlabel="probability that a run of the first scores above one of the second, %")
    text = f"{_on(runs, scores)} Intervals: 95 %, bootstrap over seeds."
    finish(figure, [axes], text + _few(scores) + not_drawn(scores.left_out))
    return figure, scores.left_out


def _line(look: dict[str, Any]) -> dict[str, Any]:
    return {key: look[key] for key in ("color", "linestyle")}


def _on(runs: Runs, scores: Scores) -> str:
    return f"{setting(runs)}. Success on list {scores.name or '(none)'} after training."


def _few(scores: Scores) -> str:
    fewest = min((len(array) for array in scores.by_method.values()), default=RANKING_SEEDS)
    if fewest >= RANKING_SEEDS:
        return ""
    return (
        f" A method has only {fewest} seed{'' if fewest == 1 else 's'}: fewer than {RANKING_SEEDS} tell nothing sure."
    )


# --- sensitivity ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """One option of one algorithm varied with all others fixed: value -> ids of finished runs."""

    algorithm: str
    option: str
    runs: Mapping[float, list[str]]


def sweeps(runs: Runs) -> list[Sweep]:
    """Each numeric option that varies: of the settings of the other options the one with most values of it."""
    found = []
    done = runs.runs[runs.runs["state"] == "done"]
    for algorithm in method_order(done["algorithm"]):
        ids = done.loc[done["algorithm"] == algorithm, "run"]
        options = {run: _numbers(runs.configs[run]["algorithm"]) for run in ids}
        names = sorted({name for own in options.values() for name in own})
        for option in names:
            if len({own.get(option) for own in options.values()}) > 1:
                found.append(Sweep(algorithm, option, _widest(options, option)))
    return [sweep for sweep in found if len(sweep.runs) > 1]


def _numbers(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """Options, "inf" as a number; the objective and the like as well, so that they are held fixed."""
    return {key: float("inf") if value == "inf" else value for key, value in own_settings(algorithm).items()}


def _widest(options: Mapping[str, Mapping[str, Any]], option: str) -> dict[float, list[str]]:
    by_rest: dict[str, dict[float, list[str]]] = {}
    for run, own in options.items():
        value = own.get(option)
        if isinstance(value, int | float) and not isinstance(value, bool):
            rest = json.dumps({k: v for k, v in own.items() if k != option}, sort_keys=True)
            by_rest.setdefault(rest, {}).setdefault(float(value), []).append(run)
    return max(by_rest.values(), key=len, default={})


def sensitivity(runs: Runs, methods: pd.Series, name: str | None = None) -> tuple[Figure, list[str]]:
    """Success against each option that the runs vary (GRAFT, Table 4; GraphHCA, Tables 3 to 6), one panel an option
    with the others fixed; mean and standard deviation over seeds, the papers' values as hollow marks."""
    scores = final_scores(runs, methods, name)
    episodes = runs.episodes[(runs.episodes["list"] == scores.name) & (runs.episodes["when"] == "after")]
    rates = 100 * episodes.astype({"success": float}).groupby("run")["success"].mean()
    absent = runs.runs[~runs.runs["run"].isin(rates.index) | (runs.runs["state"] != "done")]
    left_out = [
        f"{row.algorithm} seed {row.seed} ({'not evaluated' if row.state == 'done' else row.state})"
        for row in absent[absent["algorithm"] != INITIAL].itertuples()
    ]
    drawn = sweeps(runs)
    figure = new_figure(max(4.0, 2.7 * min(len(drawn), 4)), 3.0 * max(1, -(-len(drawn) // 4)))
    panels = figure.subplots(max(1, -(-len(drawn) // 4)), min(max(len(drawn), 1), 4), sharey=True, squeeze=False)
    for axes, sweep in zip(panels.flat, drawn, strict=False):
        _sweep(axes, sweep, rates, _published_sweep(runs, sweep))
    for axes in panels.flat[max(len(drawn), 1) :]:
        axes.set_visible(False)
    panels[0, 0].set(ylabel="success")
    panels[0, 0].yaxis.set_major_formatter(PercentFormatter(decimals=0))
    text = f"{_on(runs, scores)} Mean and std over seeds; hollow: published. Other options as in most of the runs."
    finish(figure, panels.flat[: max(len(drawn), 1)], text + not_drawn(left_out), legend=False)
    return figure, left_out


def _sweep(axes: Axes, sweep: Sweep, rates: pd.Series, printed: Mapping[float, float]) -> None:
    values = sorted({*sweep.runs, *printed})
    places = {value: place for place, value in enumerate(values)}  # evenly: options are spaced by hand, some infinite
    (look,) = looks([sweep.algorithm])
    rows = []
    for value, ids in sorted(sweep.runs.items()):
        center, spread = mean_std(rates.reindex(ids).dropna().tolist())
        if center is not None:
            # one seed: no bar, instead of one of no length
            rows.append((places[value], center, np.nan if spread is None else spread))
    axes.errorbar(
        [row[0] for row in rows], [row[1] for row in rows], yerr=[row[2] for row in rows], color=look["color"],
        marker=look["marker"], linewidth=1.6, markersize=5, capsize=2,
    )  # fmt: skip
    axes.plot(
        [places[value] for value in printed], list(printed.values()), linestyle="none", marker="d", markersize=6,
        markerfacecolor="none", markeredgecolor="0.35",
    )  # fmt: skip
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set(xlabel=sweep.option, title=sweep.algorithm)


def _published_sweep(runs: Runs, sweep: Sweep) -> dict[float, float]:
    """Value -> printed success, for runs of the papers' model and benchmark."""
    config = next(iter(runs.configs.values()))
    model, benchmark = Path(str(config["model"].get("path", ""))).name, config["benchmark"]["name"]
    metric = "all" if benchmark == "alfworld" else "success"
    found: dict[float, float] = {}
    for paper, table in _SWEEPS:
        for (where, printed_model, method, printed_metric), number in published(paper, table).items():
            match = re.fullmatch(r"(\w+) (\w+)=(\S+)", method)
            same = (where, printed_model, printed_metric) == (benchmark, model, metric)
            if (
                match
                and same
                and (match[1].lower(), _ALIASES.get(match[2], match[2])) == (sweep.algorithm, sweep.option)
            ):
                found[float(match[3])] = number.value
    return found
