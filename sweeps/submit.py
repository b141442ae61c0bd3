"""Submitting a grid: what is not done yet goes to Slurm in arrays, or through a pool of processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweeps import jobspec, plan, preflight, slurm, snapshot, states, submission
from sweeps.files import StoreError, read_json
from sweeps.jobspec import JobSpec
from sweeps.plan import GridPlan, Planned
from sweeps.states import RunState
from sweeps.store import RunFolder

Say = Callable[[str], None]
SUBMITTED_BY_DEFAULT = ("missing", "failed", "lost")
CHOICES = (*SUBMITTED_BY_DEFAULT, "cancelled")


class QueueUnknown(StoreError):
    """The queue cannot be read, so nothing may be submitted."""


@dataclass(frozen=True)
class Array:
    """Cells of equal resources that go into one array; `tasks[K]` are those of element K. `limit` is its %N; with
    `chained` it waits for the array before it, so that the limit holds for all of them together."""

    spec: JobSpec
    tasks: tuple[tuple[Planned, ...], ...]
    limit: int | None = None
    chained: bool = False

    def describe(self) -> str:
        """One line for a plan."""
        cells = sum(map(len, self.tasks))
        packed = f", {self.spec.pack} cells a job" if self.spec.pack > 1 else ""
        limit = f"%{self.limit}" if self.limit else ""
        after = ", after the one before" if self.chained else ""
        return f"{cells} cells in 0-{len(self.tasks) - 1}{limit}{packed}{after}: {jobspec.describe(self.spec)}"


@dataclass(frozen=True)
class Options:
    """How a grid is submitted."""

    only: tuple[str, ...] = SUBMITTED_BY_DEFAULT
    most: int | None = None
    concurrent: int | None = None
    allow_dirty: bool = False
    snapshot: bool = True
    same_code: bool = False
    filters: tuple[dict[str, object], ...] = ()


@dataclass
class Report:
    """What a submission did."""

    arrays: list[str] = field(default_factory=list)
    cells: int = 0
    stopped: str | None = None


def choose(planned: GridPlan, known: Mapping[str, RunState], options: Options) -> list[Planned]:
    """The runs to submit, in order: those in a wanted state that pass the filters."""
    passed = {p.cell.id for p in planned.cells if plan.selected(p.cell, options.filters, known[p.cell.id].state)}
    todo = [p for run, p in planned.runs.items() if known[run].state in options.only and run in passed]
    return todo[: options.most] if options.most is not None else todo


def arrays(todo: Iterable[Planned], size: int, concurrent: int | None) -> list[Array]:
    """Arrays of at most `size` elements: equal resources together, `pack` cells an element. `concurrent` elements at
    most run at a time over all arrays: it is divided among them, or, where there are more arrays than that, they follow
    one another."""
    by_spec: dict[JobSpec, list[Planned]] = {}
    for planned in todo:
        by_spec.setdefault(planned.job, []).append(planned)
    chunks = [(spec, chunk) for spec, group in by_spec.items() for chunk in _chunks(_packed(spec, group), size)]
    if concurrent is None:
        return [Array(spec, tuple(chunk)) for spec, chunk in chunks]
    if len(chunks) > concurrent:
        return [Array(spec, tuple(chunk), concurrent, chained=i > 0) for i, (spec, chunk) in enumerate(chunks)]
    share, rest = divmod(concurrent, max(1, len(chunks)))
    return [Array(spec, tuple(chunk), share + (i < rest)) for i, (spec, chunk) in enumerate(chunks)]


def _packed(spec: JobSpec, group: Sequence[Planned]) -> list[tuple[Planned, ...]]:
    return [tuple(group[i : i + spec.pack]) for i in range(0, len(group), spec.pack)]


def _chunks(tasks: Sequence[tuple[Planned, ...]], size: int) -> list[Sequence[tuple[Planned, ...]]]:
    return [tasks[i : i + size] for i in range(0, len(tasks), size)]


# --- Slurm ------------------------------------------------------------------------------------------------------------


def to_slurm(out: Path, planned: GridPlan, options: Options, say: Say) -> Report:
    """Give what is to do to Slurm, under the store's lock. QueueUnknown when the queue cannot be read, Busy when
    another process submits; a site's submit limit ends it early, and the next call goes on."""
    with submission.lock(Path(out) / "submissions"):
        queue = _known_queue()
        for line in submission.settle(out, queue):
            say(line)
        queue = _known_queue()
        known = states.read_states(out, planned.runs, queue)
        todo = choose(planned, known, options)
        code = _checked(out, todo, known, options)
        create(out, planned, todo)
        return _send_all(out, planned, arrays(todo, slurm.array_limit(), options.concurrent), code, say)


def _known_queue() -> slurm.Queue:
    queue = slurm.read_queue()
    if queue.problem is not None:
        raise QueueUnknown(f"queue unknown: {queue.problem}; nothing is submitted (without Slurm use --local N)")
    return queue


def _checked(out: Path, todo: Sequence[Planned], known: Mapping[str, RunState], options: Options) -> snapshot.Code:
    """Refuse before anything is written what would fail in every job."""
    check_configs(todo, here=False)
    if not todo:
        return snapshot.Code(None, None, None)
    code = snapshot.take(out, options.allow_dirty, options.snapshot)
    if options.same_code:
        refuse_other_code(out, known, code)
    return code


def check_configs(todo: Iterable[Planned], here: bool = True) -> None:
    """Preflight of every different combination of data, model and resources among the cells, and of every method that
    trains nothing (they differ in what they need); not of every seed."""
    seen = set()
    for planned in todo:
        config = planned.config
        parts = {key: config[key] for key in ("benchmark", "model", "protocol", "resources")}
        key = repr((None if config["algorithm"]["objective"] else config["algorithm"], parts))
        if key not in seen:
            seen.add(key)
            preflight.check(config, here)


def commits(out: Path, ids: Iterable[str]) -> dict[str, list[str]]:
    """Code version (`commit` or `commit+dirty`) -> runs whose newest attempt ran it."""
    found: dict[str, list[str]] = {}
    for run in ids:
        attempts = RunFolder(Path(out) / "runs" / run).attempts()
        record = read_json(attempts[-1] / "env.json") if attempts else None
        if record is not None:
            found.setdefault(_version(record.get("commit"), record.get("dirty")), []).append(run)
    return found


def _version(commit: str | None, dirty: str | None) -> str:
    return (commit or "(no commit)")[:12] + (f"+{dirty}" if dirty else "")


def refuse_other_code(out: Path, known: Mapping[str, RunState], code: snapshot.Code) -> None:
    """StoreError when a cell that is done was run by other code than `code`."""
    others = set(commits(out, (run for run, state in known.items() if state.state == "done")))
    others.discard(_version(code.commit, code.dirty))
    if others:
        raise StoreError(f"--same-code: cells of this grid were run by other code ({', '.join(sorted(others))})")


def create(out: Path, planned: GridPlan, todo: Sequence[Planned]) -> None:
    """The grid's record and the folders of what is to run, flushed to the disk once for all."""
    for one in todo:
        RunFolder.create(Path(out).resolve() / "runs", one.config, durable=False)
    plan.write_record(out, planned)
    if todo:
        os.sync()


def _send_all(out: Path, planned: GridPlan, chunks: Sequence[Array], code: snapshot.Code, say: Say) -> Report:
    report = Report()
    previous: str | None = None
    for chunk in chunks:
        tasks = [[one.cell.id for one in task] for task in chunk.tasks]
        made = submission.new(out, planned.name, tasks, chunk.spec, code)
        try:
            previous = submission.send(out, made, chunk.limit, previous if chunk.chained else None)
        except slurm.LimitError as error:
            report.stopped = str(error)
            return report
        report.arrays.append(previous)
        report.cells += sum(map(len, tasks))
        say(f"submitted array {previous}: {chunk.describe()} (submission {made.id})")
    return report
