"""`creditbench quickstart`: all methods side by side from one warm start, on this machine, in minutes."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps import config as configs
from sweeps import preflight, progress
from sweeps.config import ConfigError
from sweeps.files import StoreError, atomic_write_json, atomic_write_text
from sweeps.local import INTERRUPTED, Job, Outcome, Watcher, run_jobs, terminate_like_interrupt
from sweeps.schema import nearest
from sweeps.store import RunFolder

RUNNER = "sweeps.run"  # what trains; imported once, by the fork server
INITIAL = "initial"


@dataclass(frozen=True)
class Cell:
    """One run of the plan."""

    method: str
    seed: int
    config: dict[str, Any]
    folder: Path

    @property
    def label(self) -> str:
        """The name on the terminal."""
        return INITIAL if self.method == INITIAL else f"{self.method} seed {self.seed}"

    @property
    def updates(self) -> int:
        """Number of updates; none for a method that is only evaluated."""
        return self.config["protocol"]["updates"] if self.config["algorithm"]["objective"] else 0

    @property
    def state(self) -> str:
        """State of its run; `new` before anything is written."""
        return RunFolder(self.folder).state() if self.folder.is_dir() else "new"


@dataclass(frozen=True)
class Plan:
    """The cells of a comparison: the initial policy once, then every method with every seed."""

    out: Path
    cells: tuple[Cell, ...]

    @property
    def compared(self) -> tuple[Cell, ...]:
        """The cells of methods: all but the initial policy's."""
        return tuple(cell for cell in self.cells if cell.method != INITIAL)

    @property
    def todo(self) -> tuple[Cell, ...]:
        """The cells that are not done."""
        return tuple(cell for cell in self.cells if cell.state != "done")


def default_methods() -> tuple[str, ...]:
    """Every built-in estimator that has a configuration, in table order; registered ones are named with --methods."""
    from algorithms import built_in

    configured = configs.choices("algorithm")
    return tuple(name for name in built_in() if name in configured)


def make_plan(
    out: Path,
    methods: Sequence[str] | None = None,
    seeds: int = 2,
    overrides: Sequence[str] = (),
    config_dir: Path | None = None,
) -> Plan:
    """The plan of a quick start: seeds 1 to `seeds`, one seed of all methods before the next.

    ConfigError for an unknown method, an override of what the plan sets itself, and all that `config.compose` refuses.
    """
    methods = default_methods() if methods is None else tuple(methods)
    _check(methods, seeds, overrides, config_dir)
    grid = [(INITIAL, 1)] + [(method, seed) for seed in range(1, seeds + 1) for method in methods]
    return Plan(out, tuple(_cell(out, method, seed, overrides, config_dir) for method, seed in grid))


def _check(methods: Sequence[str], seeds: int, overrides: Sequence[str], config_dir: Path | None) -> None:
    known = [name for name in configs.choices("algorithm", config_dir) if name != INITIAL]
    for method in methods:
        if method not in known:
            raise ConfigError(
                f"--methods: {method!r} does not exist{nearest(method, known)} (known: {', '.join(known)})"
            )
    if len(set(methods)) < len(methods):
        raise ConfigError(f"--methods names one method twice: {', '.join(methods)}")
    if seeds < 1:
        raise ConfigError(f"--seeds must be a whole number >= 1, got {seeds}")
    for text in overrides:
        key = text.lstrip("+~").partition("=")[0]
        if key in ("algorithm", "seed", "algorithm.name"):
            raise ConfigError(f"{text!r}: the quick start sets {key} itself; use --methods and --seeds")
        if key.startswith("algorithm."):
            raise ConfigError(f"{text!r}: methods have different knobs; use `creditbench train algorithm=... {text}`")


def _cell(out: Path, method: str, seed: int, overrides: Sequence[str], config_dir: Path | None) -> Cell:
    resolved = configs.compose([f"algorithm={method}", f"seed={seed}", *overrides], config_dir)
    return Cell(method, seed, resolved, out / "runs" / configs.identity(resolved))


# --- the plan in words ------------------------------------------------------------------------------------------------


def describe(plan: Plan, jobs: int) -> str:
    """What a quick start would do, as text: cells and their state, the work in numbers, what it would write."""
    return "\n".join([*_numbers(plan, jobs), "", *_cell_lines(plan), "", *_files(plan)])


def _numbers(plan: Plan, jobs: int) -> list[str]:
    cell = plan.compared[0]
    protocol, benchmark, model = cell.config["protocol"], cell.config["benchmark"], cell.config["model"]
    per_update = protocol["tasks_per_update"] * protocol["group_size"]
    episodes = per_update * protocol["updates"]
    options = ", ".join(f"{key}={value}" for key, value in benchmark["options"].items())
    methods = _count(len({c.method for c in plan.compared}), "method")
    seeds = _count(len({c.seed for c in plan.compared}), "seed")
    lines = [
        f"plan        {len(plan.cells)} cells, {jobs} at a time: the initial policy, then {methods} x {seeds}",
        f"benchmark   {benchmark['name']} ({options})",
        f"model       {model['name']}, {model['decoding']} decoding{_warm_start(model)}",
        f"training    {protocol['updates']} updates x {protocol['tasks_per_update']} tasks x {protocol['group_size']} "
        f"trajectories = {episodes} episodes of at most {protocol['horizon']} steps a cell, "
        f"{episodes * sum(c.updates > 0 for c in plan.compared)} in all",
        f"tasks       {_slice(protocol['train'])}",
    ]
    for name, chosen in protocol["evaluation"]["lists"].items():
        lines.append(f"evaluation  {name}: {_slice(chosen)}, {_count(chosen['repeats'], 'episode')} each")
    return lines


def _warm_start(model: dict[str, Any]) -> str:
    warm = model.get("warm_start")
    if not warm:
        return ""
    return f", warm start once: {warm['steps']} steps on {warm['runs']} demonstrations of each of {warm['tasks']} tasks"


def _slice(chosen: dict[str, Any]) -> str:
    first, count = chosen["offset"], chosen["count"]
    span = f"from {first} on" if count is None else f"{first} to {first + count - 1}"
    return f"{chosen['split']} {span}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _cell_lines(plan: Plan) -> list[str]:
    return [f"  {cell.folder.name}  {cell.label:<18} {cell.state}" for cell in plan.cells]


def _files(plan: Plan) -> list[str]:
    return [
        f"writes to {plan.out}: runs/<id>/ for each cell, cache/, plan.json, comparison.md, .csv and .json,",
        "learning_curves.png and .pdf. Cells that are done are kept; interrupted ones go on.",
    ]


# --- running it -------------------------------------------------------------------------------------------------------


def execute(plan: Plan, jobs: int) -> int:
    """Run what is not done, then write and print the comparison. The exit code: 0, 1 if a cell failed, 130 if
    interrupted (what is done is kept; the same command goes on)."""
    check(plan)
    try:
        with _alone_in(plan.out), terminate_like_interrupt():
            _refuse_running(plan)
            _write_plan(plan)
            outcomes = _run(plan, jobs)
    except KeyboardInterrupt:
        print(f"\ninterrupted: finished work is kept in {plan.out}; run the same command again to go on")
        return INTERRUPTED
    report(plan)
    return _report_failures(outcomes)


def check(plan: Plan) -> None:
    """ConfigError for what would fail only once cells run; methods that train all need the same."""
    different = {cell.updates or cell.method: cell for cell in plan.compared}
    for cell in different.values():
        preflight.check(cell.config)


@contextlib.contextmanager
def _alone_in(out: Path) -> Iterator[None]:
    """Hold the folder; StoreError while another quick start works in it. A killed one holds nothing."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"another quick start is working in {out}; wait for it or choose another --out") from None
        yield


def _refuse_running(plan: Plan) -> None:
    for cell in plan.cells:
        if cell.state == "running":
            holder = RunFolder(cell.folder).holder()
            raise StoreError(
                f"{cell.label} ({cell.folder}) is running already in process {holder}; wait or stop it first"
            )


def _write_plan(plan: Plan) -> None:
    """Folders and configurations first: a table is made from this list, not from what happens to lie there."""
    for cell in plan.cells:
        RunFolder.create(plan.out / "runs", cell.config)
    cells = [{"id": cell.folder.name, "method": cell.method, "seed": cell.seed} for cell in plan.cells]
    atomic_write_json(plan.out / "plan.json", {"schema": 1, "cells": cells})


def _run(plan: Plan, jobs: int) -> list[Outcome]:
    todo = plan.todo
    if not todo:
        print("every cell is done already")
        return []
    threads = plan.cells[0].config["resources"]["threads"]
    preparation = _preparation(plan)
    prepared = _pool([preparation], 1, threads, progress.watcher({preparation.label: 0}))
    if any(outcome.exit_code for outcome in prepared):
        return prepared
    cells = [Job(cell.label, f"{RUNNER}:run_cell", (cell.folder,), _log(cell.folder), cell.folder) for cell in todo]
    return _pool(cells, jobs, threads, progress.watcher({cell.label: cell.updates for cell in todo}))


def _preparation(plan: Plan) -> Job:
    config = plan.cells[0].config
    label = "warm start" if "warm_start" in config["model"] else "model"
    return Job(label, f"{RUNNER}:prepare", (config, plan.out), plan.out / "cache" / "prepare.log")


def _log(folder: Path) -> Path:
    return folder / "start.log"


def _pool(jobs: Sequence[Job], workers: int, threads: int, watcher: Watcher) -> list[Outcome]:
    try:
        return run_jobs(jobs, workers, preload=(RUNNER,), threads=threads, watcher=watcher)
    finally:
        close = getattr(watcher, "close", None)
        if close:
            close()


def report(plan: Plan) -> None:
    """Print the comparison of the plan's cells and write it with the learning curves."""
    from analysis.figures import learning_curves
    from analysis.load import load_runs
    from analysis.tables import comparison

    runs = load_runs([cell.folder for cell in plan.cells])
    methods = list(dict.fromkeys(cell.method for cell in plan.compared))
    lists = list(plan.cells[0].config["protocol"]["evaluation"]["lists"])
    table = comparison(runs, lists, methods, sorted({cell.seed for cell in plan.compared}))
    print("\n" + table.render_terminal())
    for suffix, text in (("md", table.markdown()), ("csv", table.csv()), ("json", table.json())):
        atomic_write_text(plan.out / f"comparison.{suffix}", text)
    learning_curves(runs, plan.out / "learning_curves")
    print(f"all in {plan.out}: comparison.md, .csv and .json, learning_curves.png and .pdf, runs/")


def _report_failures(outcomes: Sequence[Outcome]) -> int:
    failed = [outcome for outcome in outcomes if outcome.exit_code]
    for outcome in failed:
        print(f"{outcome.job.label} failed: {outcome.reason}\n  log: {outcome.log}")
    return 1 if failed else 0
