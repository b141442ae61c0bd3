"""Numbers in the estimators' pages: what stands between two marks of a page is generated, the rest is written.

A page holds blocks such as

    <!-- faithfulness: graft graft:sinks=dedicated -->
    <!-- end -->

and `refresh` fills them with the faithfulness of these estimators in every known world. `overview` in place of
`faithfulness` gives one line an estimator, averaged over worlds. Equal code gives equal pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from analysis.faithfulness import summary
from analysis.faithfulness_report import HEADERS, LEGEND, overview
from analysis.render import DASH, pipe_table

_BLOCK = re.compile(r"(<!-- (faithfulness|overview): ([^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)
_SHOWN = ("mse_scaled", "sign", "rank", "cosine", "mean_cosine", "bias2", "variance", "zero")
_HUGE = 100.0  # a ratio to a mean A² of nearly 0; its digits say nothing


class PageError(ValueError):
    """A page that can't be refreshed; the message names it."""


def pages(folder: str | Path) -> list[Path]:
    """The pages of a folder, by name. `PageError` when there is none."""
    found = sorted(Path(folder).glob("*.md"))
    if not found:
        raise PageError(f"{folder}: no page (*.md) in it; give the folder of the estimators' pages")
    return found


def refreshed(page: Path) -> str:
    """The page's text with its blocks generated anew. Raises `PageError` without a block, `OptionError` for an
    estimator that isn't registered."""
    text = page.read_text(encoding="utf-8")
    if _BLOCK.search(text) is None:
        raise PageError(
            f"{page}: no block to fill; write <!-- faithfulness: NAME --> and <!-- end --> on lines of their own"
        )
    return _BLOCK.sub(lambda match: f"{match[1]}\n{_generated(match[2], match[3].split())}\n\n{match[4]}", text)


def _generated(kind: str, estimators: list[str]) -> str:
    if kind == "overview":
        rows = [row for name in estimators for row in _summary(name)]
        return "\n".join([pipe_table(overview(rows)), "", *(f"- {line}" for line in LEGEND)])
    parts = []
    for name in estimators:
        parts += [f"`{name}`, groups of 8 rollouts:", pipe_table(_grid(_summary(name)))]
    return "\n\n".join(parts)


@cache
def _summary(estimator: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(summary(estimator))


def _grid(rows: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    grid = [["world", "success", *(HEADERS[key] for key in _SHOWN)]]
    for row in rows:
        grid.append([row["world"], f"{row['success']:.2f}", *(_text(row[key], row[f"{key}_ci"]) for key in _SHOWN)])
    return grid


def _text(value: float | None, half: float | None) -> str:
    if value is None:
        return DASH
    if abs(value) > _HUGE:
        return f"> {_HUGE:.0f}"
    return f"{value:.2f}" + ("" if half is None else f" ±{half:.2f}")
