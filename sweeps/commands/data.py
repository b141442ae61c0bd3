"""`creditbench data`: build and describe the data of benchmarks."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from sweeps.arguments import UsageError

ORDER = 60
_EVERY = 10_000  # products between two lines of progress


def add(commands: Any) -> None:
    """The command's arguments."""
    data = commands.add_parser("data", help="build and describe a benchmark's data")
    benchmarks = data.add_subparsers(dest="benchmark", metavar="BENCHMARK", required=True)
    webshop = benchmarks.add_parser("webshop", help="WebShop's catalogues")
    verbs = webshop.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_build(verbs)
    _add_report(verbs)


def _add_build(verbs: Any) -> None:
    build = verbs.add_parser("build", help="build a catalogue from WebShop's JSON files, streaming")
    build.add_argument(
        "files", nargs="+", type=Path, metavar="FILE",
        help="items_shuffle.json, items_ins_v2.json and items_human_ins.json, in any order and under any name",
    )  # fmt: skip
    build.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the catalogue's folder, a new one")
    build.add_argument("--products", type=int, metavar="N", help="only the first N rows, like num_products")
    build.add_argument("--name", help="name of the catalogue in results (default: number of products and hash)")
    build.add_argument(
        "--tagger", default="rules", metavar="TAGGER",
        help="who finds the nouns of titles: rules, spacy:MODEL or table:FILE (default: %(default)s)",
    )  # fmt: skip
    build.set_defaults(run=_build)


def _add_report(verbs: Any) -> None:
    report = verbs.add_parser("report", help="what a catalogue holds, its splits, the best that can be reached")
    report.add_argument("--data", default="made", help="made, made-N or a built catalogue's folder (default: made)")
    report.add_argument("--goals", default="fixed", help="fixed, official or verl_agent (default: %(default)s)")
    report.add_argument("--goal-kind", help="human or synthetic (default: synthetic for verl_agent, else human)")
    report.add_argument("--split", action="append", dest="splits", help="only this split; may be given again")
    report.set_defaults(run=_report)


def _build(arguments: argparse.Namespace) -> int:
    from benchmarks.webshop.build import BuildError, build
    from benchmarks.webshop.tagging import TaggerError

    if arguments.products is not None and arguments.products < 1:
        raise UsageError(f"--products must be a whole number >= 1, got {arguments.products}")
    started, shown = time.monotonic(), [0]

    def show(count: int) -> None:
        if count >= shown[0] + _EVERY:
            shown[0] = count
            print(f"{count} products, {time.monotonic() - started:.0f} s", flush=True)

    try:
        manifest = build(
            arguments.files, arguments.out, name=arguments.name, limit=arguments.products, tagger=arguments.tagger,
            progress=show,
        )  # fmt: skip
    except (BuildError, TaggerError) as error:
        raise UsageError(str(error)) from None
    goals = manifest["goals"]
    print(
        f"{arguments.out}: {manifest['products']} products ({manifest['without_attributes']} without attributes), "
        f"{goals['human']} human and {goals['synthetic']} synthetic instructions, nouns by {manifest['tagger']}"
    )
    print(f"use it: creditbench train benchmark=webshop benchmark.options.data={arguments.out}")
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from benchmarks import webshop

    try:
        benchmark = webshop.make(data=arguments.data, goals=arguments.goals, goal_kind=arguments.goal_kind)
        record = benchmark.record()
        audits = [benchmark.audit(split) for split in arguments.splits or benchmark.splits()]
    except ValueError as error:
        raise UsageError(str(error)) from None
    stamp = record["stamp"][:16]
    print(f"{record['label']}: {record['products']} products, nouns by {record['tagger']}, stamp {stamp}")
    if "warning" in record:
        print(f"warning: {record['warning']}")
    for audit in audits:
        print(
            f"{audit['split']:<6} {audit['goals']:>6} goals, hash {audit['hash']}, ceiling: score "
            f"{audit['ceiling_score']:.2f}, success {audit['ceiling_success']:.2f}, "
            f"{len(audit['unreachable'])} unreachable"
        )
        for name in audit["unreachable"]:
            print(f"         {name}")
    return 0
