"""`creditbench faithfulness` and `creditbench claims`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError

ORDER = 60


def add(commands: Any) -> None:
    """The commands' arguments."""
    measure = commands.add_parser(
        "faithfulness",
        help="measure estimators against exact advantages in known worlds, and test the papers' claims",
    )
    _add_shared(measure)
    measure.add_argument(
        "--worlds", type=int, default=5, metavar="N", help="worlds and policies of each kind (default: %(default)s)"
    )
    measure.set_defaults(run=_measure)
    claims = commands.add_parser("claims", help="test the papers' claims in known worlds, nothing else")
    _add_shared(claims)
    claims.set_defaults(run=_claims)


def _add_shared(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--estimators",
        metavar="A,B",
        help="only these; options as in graft:sinks=dedicated:gae_lambda=0 (default: all registered)",
    )
    command.add_argument("--seed", type=int, default=0, metavar="N", help="seed of worlds and rollouts (default: 0)")
    command.add_argument("--out", type=Path, default=Path("results/faithfulness"), help="folder (default: %(default)s)")


def _chosen(arguments: argparse.Namespace) -> list[Any]:
    from algorithms import OptionError
    from analysis import faithfulness

    if arguments.seed < 0:
        raise UsageError(f"--seed must be a whole number >= 0, got {arguments.seed}")
    names = None if arguments.estimators is None else arguments.estimators.split(",")
    try:
        return faithfulness.variants(names)
    except OptionError as error:
        raise UsageError(f"--estimators: {error}") from None


def _measure(arguments: argparse.Namespace) -> int:
    from analysis import faithfulness, faithfulness_report
    from sweeps.files import atomic_write_json, atomic_write_text

    if arguments.worlds < 1:
        raise UsageError(f"--worlds must be a whole number >= 1, got {arguments.worlds}")
    chosen, out = _chosen(arguments), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    rows = faithfulness.run(chosen, arguments.seed, arguments.worlds, _progress)
    atomic_write_json(out / "faithfulness.json", {"schema": 1, "seed": arguments.seed, "rows": rows})
    atomic_write_text(out / "faithfulness.csv", faithfulness_report.table_csv(rows))
    atomic_write_text(out / "faithfulness.md", faithfulness_report.markdown(rows))
    faithfulness_report.draw_axes(rows, out / "axes")
    faithfulness_report.draw_bias_variance(rows, out / "bias_variance")
    faithfulness_report.draw_worlds(rows, out / "worlds")
    print(f"\n{faithfulness_report.terminal(rows)}", flush=True)
    return _claims(arguments)


def _progress(done: int, of: int) -> None:
    if done == of or done % 5 == 0:
        print(f"faithfulness: {done}/{of} cases", flush=True)


def _claims(arguments: argparse.Namespace) -> int:
    from analysis import claims
    from sweeps.files import atomic_write_json, atomic_write_text

    chosen, out = _chosen(arguments), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    findings = claims.run(arguments.seed, chosen)
    atomic_write_json(out / "claims.json", {"schema": 1, "seed": arguments.seed, "claims": claims.record(findings)})
    atomic_write_text(out / "claims.md", claims.markdown(findings))
    print(f"{claims.terminal(findings)}\ntables, figures and every test: {out}")
    return 0
