"""Tables of a set of runs: pure functions from frames (`Runs`) to a `Table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from analysis.commits import odd_ones
from analysis.comparable import INITIAL, ComparisonError, check_comparable, method_names, method_order, trains
from analysis.load import Runs
from analysis.render import Cell, Column, Panel, Table, letters
from analysis.scores import final_episodes, list_names, seed_costs, seed_scores
from analysis.stats import RANKING_SEEDS, mean_std, wilson

__all__ = ["Cell", "Column", "ComparisonError", "Panel", "Table", "comparison"]

LIST_TITLES = {"training_games": "games trained on", "unseen_games": "games never trained on"}

COST_COLUMNS = (
    Column("cost.timing/all", "total", "seconds an update", digits=None, spread=True),
    Column("cost.timing/rollout", "rollout", "seconds an update", digits=None),
    Column("cost.timing/generation", "generate", "seconds an update", digits=None),
    Column("cost.timing/environment", "env", "seconds an update", digits=None),
    Column("cost.timing/advantage", "advantage", "seconds an update", digits=None),
    Column("cost.timing/old_logprob", "logprob", "seconds an update", digits=None),
    Column("cost.timing/update", "update", "seconds an update", digits=None),
    Column("cost.updates", "updates", "updates", digits=0),
    Column("cost.episodes", "episodes", "episodes", digits=0),
)


def comparison(
    runs: Runs,
    lists: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> Table:
    """Methods side by side: one panel for each evaluation list, then one for the cost.

    A value is the mean over a method's finished runs, one a seed. Success is the share of a seed's episodes, in
    percent; `change` is points against the mean of the initial policy on the same list (its row says where that was
    measured: `scores.final_episodes`). Unfinished and missing runs give no value and are named in the notes.

    Args:
        runs: from `load_runs`.
        lists: evaluation lists, in order; by default all that were found, training tasks first.
        methods: methods that must have a row, even without a run; by default those found. The initial policy always
            has its row.
        seeds: seeds that every trained method should have; by default all found among them.

    Raises:
        ComparisonError: no runs; runs that differ in benchmark, model, protocol or the way of evaluation; two runs of
            one method and seed.
    """
    lists = tuple(lists) if lists is not None else list_names(runs)
    check_comparable(runs, lists)
    names = method_names(runs)
    scores = {name: seed_scores(final_episodes(runs, names, name)) for name in lists}
    grid = _Grid.of(runs, names, methods, seeds)
    parts = [_list_part(runs, grid, name, scores[name]) for name in lists]
    parts.append(_cost_part(grid, seed_costs(runs, names)))
    return Table(
        title=_title(runs),
        panels=tuple(
            replace(panel, title=f"{letter.upper()}. {panel.title}")
            for letter, (panel, _) in zip(letters(), parts, strict=False)
        ),
        cells={place: cell for _, cells in parts for place, cell in cells.items()},
        notes=(*_caution(grid, scores), *_holes(grid, scores), *_commits(runs, names), *_reading(grid, scores)),
        marks=_commit_marks(runs, names),
    )


@dataclass(frozen=True)
class _Grid:
    """The cells that a table should have: trained methods by seeds, and what became of each."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    states: Mapping[tuple[str, int], str]  # "done", or what happened instead, in words

    @classmethod
    def of(cls, runs: Runs, names: pd.Series, methods: Sequence[str] | None, seeds: Sequence[int] | None) -> _Grid:
        frame = runs.runs.assign(method=names)
        trained = frame[frame["method"] != INITIAL]
        states = {
            (row.method, row.seed): f"{row.state}: {row.reason}" if row.reason else row.state
            for row in frame.itertuples()
        }
        return cls(
            methods=method_order({*(methods or ()), *trained["method"]} - {INITIAL}),
            seeds=tuple(sorted({*(seeds or ()), *trained["seed"]})),
            states=states,
        )

    def finished(self, method: str) -> list[int]:
        """Seeds of a method's finished runs."""
        return [seed for (name, seed), state in self.states.items() if name == method and state == "done"]

    @property
    def cells(self) -> list[tuple[str, int]]:
        """(method, seed) of every run that is there or should be, the initial policy's first."""
        initial = [cell for cell in self.states if cell[0] == INITIAL]
        return [*initial, *((method, seed) for method in self.methods for seed in self.seeds)]


_Part = tuple[Panel, dict[tuple[str, str], Cell]]


# --- success on a list ----------------------------------------------------------------------------------------------


def _list_part(runs: Runs, grid: _Grid, name: str, scores: pd.DataFrame) -> _Part:
    """The panel of one evaluation list. Column keys are `<list>.<measure>`."""
    kinds = [column.removeprefix("kind.") for column in scores.columns if column.startswith("kind.")]
    columns = (
        Column(f"{name}.success", "success", "%", spread=True),
        Column(f"{name}.change", "change", "points", signed=True),
        *(Column(f"{name}.kind.{kind}", kind, "%") for kind in kinds),
        Column(f"{name}.turns", "turns", "steps an episode"),
        Column(f"{name}.episodes", "episodes", "episodes", digits=0),
        Column(f"{name}.seeds", "seeds", "seeds", digits=0),
    )
    rows = (INITIAL, *grid.methods)
    cells = {}
    for row in rows:
        seeds = _rows_of(scores, row)
        for column in columns:
            measure = column.key.removeprefix(f"{name}.")
            cells[row, column.key] = _score(measure, seeds, _rows_of(scores, INITIAL), _why(grid, name, row))
    title = f"Success on {LIST_TITLES.get(name, name.replace('_', ' '))}, %"
    return Panel(title, columns, rows, _measured(runs, name)), cells


def _rows_of(scores: pd.DataFrame, method: str) -> pd.DataFrame:
    return scores[scores.index.get_level_values("method") == method]


def _score(measure: str, seeds: pd.DataFrame, initial: pd.DataFrame, why: str) -> Cell:
    """One measure of one method from its rows of `seed_scores`."""
    if seeds.empty:
        return Cell(None, reason=why)
    if measure == "change":
        return _change(seeds, initial)
    if measure == "seeds":
        return Cell(float(len(seeds)), seeds=len(seeds))
    if measure == "episodes":
        return Cell(float(seeds["episodes"].sum()), seeds=len(seeds), episodes=int(seeds["episodes"].sum()))
    counted = f"episodes.{measure.removeprefix('kind.')}" if measure.startswith("kind.") else "episodes"
    return replace(_mean(seeds[measure], "no task of this kind"), episodes=int(seeds[counted].sum()))


def _change(seeds: pd.DataFrame, initial: pd.DataFrame) -> Cell:
    if seeds.index.equals(initial.index):
        return Cell(None, reason="change is counted from this row")
    if initial.empty:
        return Cell(None, reason="no evaluation of the initial policy to count change from")
    return _mean(seeds["success"] - initial["success"].mean(), "")


def _mean(values: pd.Series, reason: str) -> Cell:
    """Mean and std of the values that are there, one a seed."""
    present = values.dropna()
    mean, std = mean_std(present.tolist())
    return Cell(mean, std, seeds=len(present), reason="" if mean is not None else reason)


def _why(grid: _Grid, name: str, method: str) -> str:
    """Why a method has no score on a list."""
    if method == INITIAL:
        return f"no evaluation of {name} by the initial policy"
    return f"no evaluation of {name} after training" if grid.finished(method) else "no finished run"


def _measured(runs: Runs, name: str) -> str:
    """What an evaluation list is and how it was played."""
    headers = runs.evaluations[runs.evaluations["list"] == name]
    if headers.empty:
        return f"list {name}: never evaluated"
    head = headers.iloc[0]
    return (
        f"list {name} ({head['list_hash']}): {head['count']} tasks x {head['repeats']}, {head['decoding']} decoding, "
        f"temperature {head['temperature']}, at most {head['horizon']} steps"
    )


# --- cost -----------------------------------------------------------------------------------------------------------


def _cost_part(grid: _Grid, costs: pd.DataFrame) -> _Part:
    cells, rows = {}, tuple(filter(trains, grid.methods))
    for row in rows:
        seeds = _rows_of(costs, row)
        for column in COST_COLUMNS:
            measure = column.key.removeprefix("cost.")
            why = "no metrics" if grid.finished(row) else "no finished run"
            values = seeds[measure] if measure in seeds else pd.Series(dtype=float)
            cells[row, column.key] = _mean(values, f"{measure} was not logged" if len(seeds) else why)
    detail = "total = rollout + advantage + logprob + update; generate and env are parts of rollout"
    return Panel("Cost of training: mean seconds an update, by stage", COST_COLUMNS, rows, detail), cells


# --- words around the numbers ---------------------------------------------------------------------------------------


def _title(runs: Runs) -> str:
    first = runs.runs.iloc[0]
    labels = [label for label in runs.runs["label"] if label]
    data = labels[0] if labels else first["benchmark"]
    return f"{data}, model {first['model']}, protocol {first['protocol']}"


def _reading(grid: _Grid, scores: Mapping[str, pd.DataFrame]) -> list[str]:
    """How to read the numbers."""
    notes = [
        "Means over seeds; ± is the sample standard deviation over seeds, absent with one seed. Success: share of the "
        "episodes that the environment calls won. Change: points against the initial policy. Turns: steps an episode, "
        "failures included."
    ]
    initial = grid.finished(INITIAL)
    if not initial:
        notes.append("Row initial: the other runs' own evaluation before training.")
    elif any(len(_rows_of(frame, INITIAL)) < len(initial) for frame in scores.values()):
        notes.append("Row initial: seeds that gave equal episodes are one sample of one policy and count once.")
    return notes + _by_text({name: _kind_counts(frame) for name, frame in scores.items()})


def _kind_counts(scores: pd.DataFrame) -> str:
    kinds = [column for column in scores.columns if column.startswith("episodes.")]
    counts = ", ".join(f"{kind.removeprefix('episodes.')} {scores[kind].max():.0f}" for kind in kinds)
    return f"Episodes of a seed by kind: {counts}" if len(scores) and kinds else ""


def _caution(grid: _Grid, scores: Mapping[str, pd.DataFrame]) -> list[str]:
    """How little a difference may mean."""
    notes = []
    fewest = min((len(grid.finished(method)) for method in grid.methods), default=RANKING_SEEDS)
    if fewest < RANKING_SEEDS:
        notes.append(
            f"No ranking of the methods should be read from this table: it has methods with only {fewest} finished "
            f"seed{'' if fewest == 1 else 's'}; fewer than {RANKING_SEEDS} seeds do not tell methods apart."
        )
    return notes + _by_text({name: _sampling_error(frame) for name, frame in scores.items()})


def _sampling_error(scores: pd.DataFrame) -> str:
    if scores.empty:
        return ""
    count = int(scores["episodes"].min())
    low, high = wilson(count // 2, count)
    return (
        f"A seed's success rests on {count} episodes: sampling them alone moves it by up to ±{50 * (high - low):.0f} "
        "points (95 % Wilson interval at one half)"
    )


def _by_text(texts: Mapping[str, str]) -> list[str]:
    """One note for each distinct text, with the lists that it holds for."""
    distinct = dict.fromkeys(text for text in texts.values() if text)
    return [f"{text} ({', '.join(name for name in texts if texts[name] == text)})." for text in distinct]


def _holes(grid: _Grid, scores: Mapping[str, pd.DataFrame]) -> list[str]:
    """Every run that should have counted and did not, and why."""
    notes = []
    for method, seed in grid.cells:
        state = grid.states.get((method, seed), "no run")
        if state != "done":
            notes.append(f"Not counted: {method}, seed {seed}: {state}.")
            continue
        for name, frame in scores.items():
            if method != INITIAL and (method, seed) not in frame.index:
                notes.append(f"Not counted on {name}: {method}, seed {seed}: no such evaluation after training.")
    return notes


def _commits(runs: Runs, names: pd.Series) -> list[str]:
    """What the marks of `_commit_marks` mean; nothing when all runs are of one commit."""
    _, words = odd_ones(names, runs.runs["seed"], runs.runs["commit"])
    return [f"* {words}"] if words else []


def _commit_marks(runs: Runs, names: pd.Series) -> dict[str, str]:
    return dict.fromkeys(odd_ones(names, runs.runs["seed"], runs.runs["commit"])[0], "*")
