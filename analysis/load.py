"""Run folders as tidy pandas frames. Reads plain files only (config.yaml, attempts/, evaluations/, result.json)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.cache import EVERYTHING, Frames, Wanted, read_frames
from analysis.runfiles import RunsError, is_run

__all__ = ["Runs", "RunsError", "load_runs", "no_runs", "select"]


@dataclass(frozen=True)
class Runs:
    """A set of runs, one frame a kind of fact; `run` (the run's id) joins them.

    runs         one row a run: RUN_COLUMNS. `state` is done, failed, running, interrupted or new; `reason` says why a
                 run failed or what is unsure about its state ("" otherwise); `options` is canonical JSON; `label`
                 names the data ("" before the first evaluation); `commit` is the code of the newest attempt, followed
                 by "+" and the hash of the uncommitted changes where there were some ("" unknown); `seconds` and
                 `data` (JSON: what the benchmark says about its data and engines) are of finished runs
    metrics      one row a run and update, of the newest attempt that reached it; columns as the trainer logged them
    evaluations  one row an evaluation (a task list at one moment of a run): EVALUATION_COLUMNS, then what else the
                 headers hold
    episodes     one row an evaluated episode: EPISODE_COLUMNS, then what else a benchmark records of an episode;
                 `success` is bool, `steps` counts environment steps
    configs      the resolved config by run
    """

    runs: pd.DataFrame
    metrics: pd.DataFrame
    evaluations: pd.DataFrame
    episodes: pd.DataFrame
    configs: Mapping[str, Mapping[str, Any]]


def load_runs(paths: str | Path | Iterable[str | Path], cache: Path | None = None, wanted: Wanted = EVERYTHING) -> Runs:
    """Read every run folder at or below `paths`.

    A path is a run folder, a folder of run folders, or a folder that has those under `runs/`. RunsError when there is
    none, when a run appears under two paths, or when a file is broken (a torn last line of metrics is only counted).

    With `cache`, a folder, what was read is kept there as Parquet; a run whose files have changed in name, size or
    time is read again. The folder may be deleted at any time, and one that can't be written is done without. With
    `wanted`, metrics and episodes have those columns only, which takes less time.
    """
    roots = [paths] if isinstance(paths, str | Path) else list(paths)
    folders = [folder for root in roots for folder in _run_folders(Path(root))]
    by_id: dict[str, Path] = {}
    for folder in folders:
        first = by_id.setdefault(folder.name, folder)
        if first.resolve() != folder.resolve():
            raise RunsError(f"run {folder.name} is in two places: {first} and {folder}; give only one of them")
    return _runs(read_frames(list(by_id.values()), cache, wanted))


def no_runs() -> Runs:
    """The empty set of runs."""
    return _runs(read_frames([], None))


def select(runs: Runs, chosen: Iterable[str]) -> Runs:
    """The runs with the given ids only."""
    ids = set(chosen)

    def of(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["run"].isin(ids)].reset_index(drop=True)

    return Runs(
        runs=of(runs.runs),
        metrics=of(runs.metrics),
        evaluations=of(runs.evaluations),
        episodes=of(runs.episodes),
        configs={run: config for run, config in runs.configs.items() if run in ids},
    )


def _runs(frames: Frames) -> Runs:
    return Runs(frames.runs, frames.metrics, frames.evaluations, frames.episodes, frames.configs)


def _run_folders(root: Path) -> list[Path]:
    if is_run(root):
        return [root.resolve()]
    for parent in (root, root / "runs"):
        found = sorted(child for child in parent.iterdir() if is_run(child)) if parent.is_dir() else []
        if found:
            return found
    raise RunsError(f"no run in {root}: neither it nor a folder in it (or in its runs/) holds a config.yaml")
