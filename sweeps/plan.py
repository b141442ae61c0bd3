"""A grid with its configurations, run ids and jobs: what `plan` prints and `submit` works on.

OUT/grids/NAME/cells.json    the expanded grid as last submitted; tables and `status` are made from it
OUT/runs/ID/                 one folder a run; two cells of a grid may mean the same run
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sweeps import config as configs
from sweeps import jobspec, memory
from sweeps.composer import Composer
from sweeps.files import StoreError, atomic_write_json, read_json
from sweeps.grid import ROW, Grid, matches
from sweeps.jobspec import JobSpec
from sweeps.schema import ConfigError, nearest

SCHEMA = 1
METHOD_AXIS = "algorithm"


@dataclass(frozen=True)
class Cell:
    """One cell: where it lies in the grid and which run it is.

    place: its label on every axis of the grid. axes: the values that this means (a group's choice, or the
    value of a dotted key); the labels of `row` are not among them.
    """

    id: str
    place: dict[str, Any]
    axes: dict[str, Any]
    method: str
    benchmark: str
    model: str
    seed: int
    row: str | None

    @property
    def label(self) -> str:
        """`graft alfworld tiny seed=1`, with all axes that the name needs."""
        shown = {"algorithm", "benchmark", "model", "seed", ROW}
        others = [f"{axis.rpartition('.')[2]}={value}" for axis, value in self.place.items() if axis not in shown]
        return " ".join([self.row or self.method, self.benchmark, self.model, *others, f"seed={self.seed}"])

    def record(self) -> dict[str, Any]:
        """The cell in cells.json."""
        return dict(vars(self))


@dataclass(frozen=True)
class Planned:
    """A cell that can be submitted: its configuration and its job."""

    cell: Cell
    config: dict[str, Any]
    job: JobSpec


@dataclass(frozen=True)
class GridPlan:
    """A whole grid, ready to be submitted."""

    name: str
    about: str
    table: str | None
    cells: tuple[Planned, ...]

    @cached_property
    def runs(self) -> dict[str, Planned]:
        """The first cell of each run, by id."""
        found: dict[str, Planned] = {}
        for planned in self.cells:
            found.setdefault(planned.cell.id, planned)
        return found

    def memory(self) -> dict[str, str]:
        """By model and job, what the largest of its cells takes of one GPU, in words; jobs with GPUs only."""
        most: dict[str, memory.Estimate | None] = {}
        for planned in self.runs.values():
            if planned.job.has_gpus and planned.config["model"]["kind"] != "tiny":
                name, guess = _memory_of(planned)
                known = most.get(name)
                if known is None or (guess is not None and guess.total > known.total):
                    most[name] = guess
        unknown = "unknown (presets and local folders with a config.json can be estimated)"
        return {name: unknown if guess is None else f"about {guess.text()}" for name, guess in most.items()}


def make(
    grid: Grid,
    overrides: Sequence[str] = (),
    config_dir: Path | None = None,
    cluster: str | None = None,
    job: Sequence[str] = (),
) -> GridPlan:
    """The plan of a grid: every cell composed, checked and named. ConfigError names the cell that is wrong."""
    composer = Composer(config_dir)
    given = dict(configs.parse_value(text) for text in overrides)
    _refuse_axes(grid, given)
    folders = [configs.CONF / "cluster", *([Path(config_dir) / "cluster"] if config_dir else [])]
    base, last = jobspec.profile(cluster, folders), jobspec.parse_pairs(job)
    specs: dict[str, JobSpec] = {}
    planned = []
    for point in grid.cells(given):
        key = repr(point.job)
        if key not in specs:
            specs[key] = jobspec.make(base, point.job, last, where=f"grid {grid.name}: resources")
        planned.append(_planned(grid, point.axes, point.values, specs[key], composer))
    if not planned:
        raise ConfigError(f"grid {grid.name} has no cell: its exclude rules leave nothing")
    return GridPlan(grid.name, grid.about, grid.table, tuple(planned))


def _refuse_axes(grid: Grid, given: Mapping[str, Any]) -> None:
    for key in given:
        if key in grid.axes:
            raise ConfigError(f"{key} is an axis of grid {grid.name}; choose cells with --filter {key}=...")


def _planned(grid: Grid, axes: dict[str, Any], values: dict[str, Any], job: JobSpec, composer: Composer) -> Planned:
    try:
        config = composer.compose(values)
    except ConfigError as error:
        where = ", ".join(f"{axis}={label}" for axis, label in axes.items())
        raise ConfigError(f"grid {grid.name}, cell {where}: {error}") from None
    _check_world(grid, axes, config["protocol"], job)
    _check_memory(grid, axes, config, job)
    cell = Cell(
        id=configs.identity(config),
        place=axes,
        axes={key: value for axis, label in axes.items() for key, value in grid.axis_values(axis, label).items()},
        method=config["algorithm"]["name"],
        benchmark=config["benchmark"]["name"],
        model=config["model"]["name"],
        seed=config["seed"],
        row=str(axes[ROW]) if ROW in axes else None,
    )
    return Planned(cell, config, job)


def _check_world(grid: Grid, axes: Mapping[str, Any], protocol: Mapping[str, Any], job: JobSpec) -> None:
    """Episodes of an update must divide among processes and minibatches."""
    episodes = protocol["group_size"] * protocol["tasks_per_update"]
    if job.world > 1 and episodes % (job.world * protocol["minibatches"]):
        where = ", ".join(f"{axis}={label}" for axis, label in axes.items())
        raise ConfigError(
            f"grid {grid.name}, cell {where}: {episodes} episodes do not divide among {job.world} processes x "
            f"{protocol['minibatches']} minibatches; change gpus or nodes, or protocol.minibatches"
        )


def _check_memory(grid: Grid, axes: Mapping[str, Any], config: Mapping[str, Any], job: JobSpec) -> None:
    if not job.has_gpus:
        return
    try:
        memory.check(config, memory.Layout(job.world, job.launch), job.gpu_memory)
    except ConfigError as error:
        where = ", ".join(f"{axis}={label}" for axis, label in axes.items())
        raise ConfigError(f"grid {grid.name}, cell {where}: {error}") from None


# --- the record -------------------------------------------------------------------------------------------------------


def record_path(out: Path, name: str) -> Path:
    """Where a grid's cells are listed."""
    return Path(out) / "grids" / name / "cells.json"


def write_record(out: Path, plan: GridPlan) -> None:
    """List the grid's cells, for tables and for `status`."""
    path = record_path(out, plan.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [planned.cell.record() for planned in plan.cells]
    atomic_write_json(path, {"schema": SCHEMA, "grid": plan.name, "table": plan.table, "cells": cells})


@dataclass(frozen=True)
class Record:
    """A grid's cells as submitted, and the table that they make."""

    table: str | None
    cells: list[Cell]


def read_record(out: Path, name: str) -> Record | None:
    """A grid as it was submitted; None when it was not."""
    path = record_path(out, name)
    if not path.exists():
        return None
    value = read_json(path)
    try:
        if value is None or value["schema"] != SCHEMA:
            raise KeyError("schema")
        return Record(value["table"], [Cell(**cell) for cell in value["cells"]])
    except (KeyError, TypeError):
        raise StoreError(f"{path} cannot be read; submit the grid again to write it anew") from None


# --- filters ----------------------------------------------------------------------------------------------------------


def parse_filters(texts: Iterable[str]) -> list[dict[str, Any]]:
    """`axis=value,value` texts; several filters must all hold."""
    filters = []
    for text in texts:
        key, separator, values = text.partition("=")
        if not separator or not values:
            raise ConfigError(f"--filter {text!r} must be axis=value, e.g. method=graft or seed=1,2 or model='*7b'")
        filters.append({key: values.split(",")})
    return filters


def selected(cell: Cell, filters: Sequence[Mapping[str, Any]], state: str | None = None) -> bool:
    """Whether all filters hold; they know the axes (also by last name), method, benchmark, model, seed, row, id,
    state."""
    names = _names(cell, state)
    for wanted in filters:
        for key in wanted:
            if key not in names:
                raise ConfigError(f"--filter: {key!r} is not known{nearest(key, names)} (known: {', '.join(names)})")
        if not matches(names, wanted):
            return False
    return True


def _names(cell: Cell, state: str | None) -> dict[str, Any]:
    short = {axis.rpartition(".")[2]: value for axis, value in {**cell.axes, **cell.place}.items()}
    own = {key: getattr(cell, key) for key in ("method", "benchmark", "model", "seed", "row", "id")}
    return {**short, **cell.axes, **cell.place, **own, **({"state": state} if state is not None else {})}


# --- the plan in words ------------------------------------------------------------------------------------------------


def describe(plan: GridPlan, states: Mapping[str, str], arrays: Sequence[str], cells: bool = False) -> str:
    """The plan as text: counts of every axis, resources, hours, arrays; with `cells` every cell and its state."""
    counts = Counter(states[run] for run in plan.runs)
    lines = [
        f"grid        {plan.name}: {plan.about}" if plan.about else f"grid        {plan.name}",
        f"table       {plan.table or '(none)'}",
        f"cells       {len(plan.cells)} = {_axes_text(plan)}" + _shared_text(plan),
        f"state       {', '.join(f'{count} {state}' for state, count in counts.items())}",
        *_job_lines(plan),
        *[f"memory      {name}: {text}" for name, text in plan.memory().items()],
        f"in all      {hours(plan.runs.values())} at most (runs x time limit)",
        *[f"array       {text}" for text in arrays],
    ]
    if cells:
        lines += ["", *[f"  {p.cell.id}  {states[p.cell.id]:<9} {p.cell.label}" for p in plan.cells]]
    return "\n".join(lines)


def _axes_text(plan: GridPlan) -> str:
    names = dict.fromkeys(axis for planned in plan.cells for axis in planned.cell.place)
    counts = {axis: len({repr(p.cell.place[axis]) for p in plan.cells if axis in p.cell.place}) for axis in names}
    text = " x ".join(f"{count} {axis}" for axis, count in counts.items())
    product = 1
    for count in counts.values():
        product *= count
    gap = product - len(plan.cells)
    return text + (f", {abs(gap)} {'excluded' if gap > 0 else 'included'}" if gap else "")


def _shared_text(plan: GridPlan) -> str:
    return f" ({len(plan.runs)} different runs)" if len(plan.runs) < len(plan.cells) else ""


def _job_lines(plan: GridPlan) -> list[str]:
    by_job: dict[JobSpec, list[Planned]] = {}
    for planned in plan.runs.values():
        by_job.setdefault(planned.job, []).append(planned)
    return [f"resources   {len(group)} x {jobspec.describe(job)}: {hours(group)}" for job, group in by_job.items()]


def _memory_of(planned: Planned) -> tuple[str, memory.Estimate | None]:
    """(model and job, what it takes of one GPU)."""
    config, job = planned.config, planned.job
    lora = config["model"].get("lora")
    adapted = f" LoRA {lora['rank']}" if lora else ""
    how = f"{job.world} x {job.launch}" if job.launch else "one process"
    guess = memory.estimate(config, memory.Layout(job.world, job.launch))
    return f"{config['model']['name']}{adapted}, {how}", guess


def hours(group: Iterable[Planned]) -> str:
    """GPU-hours (or, without a GPU, CPU-hours) if every job used its whole time limit."""
    group = list(group)
    gpu = sum(planned.job.gpu_hours / planned.job.pack for planned in group)
    cpu = sum(planned.job.cpu_hours / planned.job.pack for planned in group if not planned.job.gpu_hours)
    parts = [f"{gpu:,.0f} GPU-hours"] if gpu else []
    parts += [f"{cpu:,.1f} CPU-hours"] if cpu or not parts else []
    return " + ".join(parts)
