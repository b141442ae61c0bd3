"""One value a seed: what each run scored on an evaluation list and what an update cost it."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis.comparable import INITIAL, method_order
from analysis.load import Runs

KIND_ORDER = ("pick", "look", "clean", "heat", "cool", "pick2")  # ALFWorld's subtasks as its papers list them
STAGES = ("rollout", "advantage", "old_logprob", "update")  # of an update, one after the other


def list_names(runs: Runs) -> tuple[str, ...]:
    """Evaluation lists that any run has, those of training tasks first."""
    return tuple(sorted(set(runs.evaluations["list"]), key=lambda name: (not name.startswith("training"), name)))


def kind_names(kinds: Iterable[str]) -> tuple[str, ...]:
    """Distinct kinds of tasks in table order; "" (a benchmark without kinds) left out."""
    found = set(kinds) - {""}
    known = [kind for kind in KIND_ORDER if kind in found]
    return (*known, *sorted(found.difference(known)))


def final_episodes(runs: Runs, methods: pd.Series, name: str) -> pd.DataFrame:
    """Episodes on list `name` that count in a table, with columns `method` and `seed`: those after training of
    finished runs, and the initial policy's.

    The initial policy's are those of the finished `initial` runs; without such runs, those that the other runs took
    before training, of the first method that has them, seed by seed. Seeds whose episodes are all equal are one
    sample of the same policy, so only the first of them stays.
    """
    named = runs.runs.assign(method=methods)[["run", "method", "seed", "state"]]
    episodes = runs.episodes[runs.episodes["list"] == name].merge(named, on="run")
    done = episodes[episodes["state"] == "done"]
    trained = done[(done["method"] != INITIAL) & (done["when"] == "after")]
    return pd.concat([_initial(done, episodes), trained], ignore_index=True)


def _initial(done: pd.DataFrame, episodes: pd.DataFrame) -> pd.DataFrame:
    own = done[done["method"] == INITIAL]
    if len(own):
        return _distinct_seeds(_first_of(own, ("after", "before"), "when"))
    before = episodes[(episodes["when"] == "before") & (episodes["method"] != INITIAL)]
    return _distinct_seeds(_first_of(before, method_order(before["method"]), "method").assign(method=INITIAL))


def _first_of(episodes: pd.DataFrame, order: tuple[str, ...], column: str) -> pd.DataFrame:
    """Of each seed only the rows with the first value of `order` that the seed has in `column`."""
    rank = episodes[column].map({value: place for place, value in enumerate(order)})
    return episodes[rank == rank.groupby(episodes["seed"]).transform("min")]


def _distinct_seeds(episodes: pd.DataFrame) -> pd.DataFrame:
    outcome = ["task", "repeat", "success", "score", "steps"]
    seen, kept = set(), []
    for seed, rows in episodes.groupby("seed"):
        sample = tuple(rows.sort_values(["task", "repeat"])[outcome].itertuples(index=False, name=None))
        if sample not in seen:
            seen.add(sample)
            kept.append(seed)
    return episodes[episodes["seed"].isin(kept)]


def seed_scores(episodes: pd.DataFrame) -> pd.DataFrame:
    """One row a method and seed (the index): `success` (percent of the episodes), `kind.<k>` (the same over the tasks
    of one kind), `turns` (mean steps, failures included), `episodes` and `episodes.<k>` (counts).

    Args:
        episodes: from `final_episodes`.
    """
    cells = episodes.groupby(["method", "seed"], sort=False)
    columns = {
        "success": 100.0 * cells["success"].mean(),
        "turns": cells["steps"].mean(),
        "episodes": cells.size(),
    }
    for kind in kind_names(episodes["kind"]):
        of_kind = episodes[episodes["kind"] == kind].groupby(["method", "seed"], sort=False)
        columns |= {f"kind.{kind}": 100.0 * of_kind["success"].mean(), f"episodes.{kind}": of_kind.size()}
    return pd.DataFrame(columns)


def seed_costs(runs: Runs, methods: pd.Series) -> pd.DataFrame:
    """One row a method and seed of the finished runs that trained (the index): `updates` and `episodes` (totals),
    `timing/<stage>` and `timing/all` (mean seconds an update; `all` adds the STAGES and is missing without one)."""
    named = runs.runs.assign(method=methods)[["run", "method", "seed", "state"]]
    rows = runs.metrics.merge(named[named["state"] == "done"], on="run")
    stages = [f"timing/{stage}" for stage in STAGES]
    timing = sorted({name for name in rows.columns if name.startswith("timing/")}.union(stages))
    rows = rows.reindex(columns=["method", "seed", "episodes", *timing])
    rows["timing/all"] = rows[stages].sum(axis=1, skipna=False)
    cells = rows.groupby(["method", "seed"], sort=False)
    totals = pd.DataFrame({"updates": cells.size(), "episodes": cells["episodes"].sum(min_count=1)})
    return totals.join(cells[[*timing, "timing/all"]].mean())
