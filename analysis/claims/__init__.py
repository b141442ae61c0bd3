"""The papers' claims put to the test in known worlds: each is reported with its condition, numbers and verdict.

Claims are restated in our words from the papers; a claim that fails outside its condition is no error of the paper, it
says what the condition is worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from analysis.claims import baselines, g2po, graft, graphgpo, graphhca
from analysis.claims.finding import FAILS, HOLDS, UNDECIDED, Finding
from analysis.faithfulness import Variant
from analysis.render import DASH, aligned_table, pipe_table

__all__ = ["FAILS", "HOLDS", "UNDECIDED", "Finding", "markdown", "record", "run", "terminal"]


def run(seed: int = 0, chosen: Sequence[Variant] | None = None) -> list[Finding]:
    """Every test; `chosen` are the estimators whose own behavior is tested (default: all registered)."""
    return [
        *graft.findings(seed),
        *graphhca.findings(seed),
        *graphgpo.findings(seed),
        *g2po.findings(seed),
        *baselines.findings(seed, chosen),
    ]


def record(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Plain rows of all findings."""
    return [{**vars(finding), "numbers": dict(finding.numbers)} for finding in findings]


def _by_statement(findings: Sequence[Finding]) -> Iterator[tuple[str, str, str, list[Finding]]]:
    """(claim, statement, condition, findings) in order of first appearance."""
    found: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        found.setdefault((finding.claim, finding.statement, finding.condition), []).append(finding)
    for (claim, statement, condition), mine in found.items():
        yield claim, statement, condition, mine


def _tally(findings: Sequence[Finding]) -> str:
    """`holds 3 of 4`, naming what was undecided; a dash without tests."""
    if not findings:
        return DASH
    held = sum(finding.verdict == HOLDS for finding in findings)
    open_ = sum(finding.verdict == UNDECIDED for finding in findings)
    return f"holds {held} of {len(findings)}" + (f" ({open_} undecided)" if open_ else "")


def _summary(findings: Sequence[Finding]) -> list[list[str]]:
    grid = [["claim", "condition met", "condition not met"]]
    for claim, statement, _, mine in _by_statement(findings):
        met = [finding for finding in mine if finding.met is not False]
        grid.append([f"{claim}: {statement}", _tally(met), _tally([f for f in mine if f.met is False])])
    return grid


def terminal(findings: Sequence[Finding], width: int = 92) -> str:
    """One line a claim, cut to the width: in how many settings it holds, where its condition is met and where not."""
    grid = [[_cut(line[0], width), *line[1:]] for line in _summary(findings)]
    return aligned_table(grid) + "\n"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def markdown(findings: Sequence[Finding]) -> str:
    """A summary, then every test with its numbers."""
    blocks = [
        "# Claims tested in known worlds",
        "A claim without a condition, or tested where its condition is met, should hold. Undecided: the 95 % interval "
        "allows both.",
        pipe_table(_summary(findings)),
    ]
    for claim, statement, condition, mine in _by_statement(findings):
        blocks += [f"## {claim}", f"{statement[0].upper()}{statement[1:]}."]
        if condition:
            blocks.append(f"Condition: {condition}.")
        blocks.append(pipe_table(_tests(mine)))
    return "\n\n".join(blocks) + "\n"


def _tests(findings: Sequence[Finding]) -> list[list[str]]:
    names = list(dict.fromkeys(name for finding in findings for name in finding.numbers))
    grid = [["setting", "condition met", *names, "verdict"]]
    for finding in findings:
        met = {True: "yes", False: "no", None: DASH}[finding.met]
        numbers = [_number(finding.numbers.get(name)) for name in names]
        grid.append([finding.setting, met, *numbers, finding.verdict])
    return grid


def _number(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
