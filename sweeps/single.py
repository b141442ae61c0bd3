"""One run in this process: trained or gone on with, then its evaluations printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.arguments import use_threads

if TYPE_CHECKING:
    from sweeps.store import RunFolder


def run_here(config: dict[str, Any], out: Path) -> int:
    """One run in this process, unless it is done; then its evaluations."""
    from sweeps import preflight
    from sweeps.store import RunFolder

    preflight.check(config)
    run = RunFolder.create(out / "runs", config)
    if run.state() == "done":
        print(f"done already: {run.path}")
    else:
        use_threads(config["resources"]["threads"])
        from sweeps.run import prepare, run_cell

        prepare(config, out)
        print(f"run {run.id} in {run.path}")
        _run_or_explain(run, run_cell)
    print_evaluations(run)
    return 0


def _run_or_explain(run: RunFolder, run_cell: Callable[[Path], None]) -> None:
    """A failure in one line; its traceback is kept in the run's error.json."""
    from sweeps.files import StoreError
    from sweeps.schema import ConfigError

    try:
        run_cell(run.path)
    except (ConfigError, StoreError):
        raise
    except Exception as error:
        if run.error() is None:  # not recorded, so nothing would keep its traceback
            raise
        text = " ".join(str(error).split())
        raise StoreError(f"{type(error).__name__}: {text} (traceback in {run.path / 'error.json'})") from error


def print_evaluations(run: RunFolder) -> None:
    """A line an evaluation: success over all episodes and by kind of task."""
    for name, (_, rows) in run.evaluations().items():
        kinds = list(dict.fromkeys(row["kind"] for row in rows))
        parts = [_share([row for row in rows if row["kind"] == kind], kind) for kind in kinds if kind]
        print(f"{name}: {_share(rows, 'success')}" + (f" ({', '.join(parts)})" if len(parts) > 1 else ""))


def _share(rows: list[dict[str, Any]], word: str) -> str:
    won = sum(bool(row["success"]) for row in rows)
    return f"{word} {100 * won / len(rows):.1f}% = {won}/{len(rows)}" if rows else f"{word}: no episodes"
