"""`creditbench faithfulness`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError

ORDER = 60


def add(commands: Any) -> None:
    """The command's arguments."""
    command = commands.add_parser(
        "faithfulness",
        help="measure estimators against exact advantages in known worlds, and test the papers' claims",
    )
    command.add_argument(
        "--estimators",
        metavar="A,B",
        help="only these; options as in graft:sinks=dedicated:gae_lambda=0 (default: all registered)",
    )
    command.add_argument("--seed", type=int, default=0, metavar="N", help="seed of worlds and rollouts (default: 0)")
    command.add_argument(
        "--worlds", type=int, default=5, metavar="N", help="worlds and policies of each kind (default: %(default)s)"
    )
    command.add_argument("--out", type=Path, default=Path("results/faithfulness"), help="folder (default: %(default)s)")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from analysis import faithfulness, faithfulness_report
    from sweeps.files import atomic_write_json, atomic_write_text

    if arguments.seed < 0 or arguments.worlds < 1:
        raise UsageError(f"--seed must be >= 0 and --worlds >= 1, got {arguments.seed} and {arguments.worlds}")
    chosen = faithfulness.variants(arguments.estimators.split(",") if arguments.estimators else None)
    rows = faithfulness.run(chosen, arguments.seed, arguments.worlds, _progress)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    atomic_write_json(out / "faithfulness.json", {"schema": 1, "seed": arguments.seed, "rows": rows})
    atomic_write_text(out / "faithfulness.csv", faithfulness_report.table_csv(rows))
    atomic_write_text(out / "faithfulness.md", faithfulness_report.markdown(rows))
    faithfulness_report.draw_axes(rows, out / "axes")
    faithfulness_report.draw_bias_variance(rows, out / "bias_variance")
    faithfulness_report.draw_worlds(rows, out / "worlds")
    print(f"\n{faithfulness_report.terminal(rows)}\ntables and figures: {out}")
    return 0


def _progress(done: int, of: int) -> None:
    if done == of or done % 5 == 0:
        print(f"faithfulness: {done}/{of} cases", flush=True)
