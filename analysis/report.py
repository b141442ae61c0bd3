"""Pages of their own: the report of a folder of results, and the explorer of one trajectory graph.

A page holds its style, its scripts and its data; it fetches nothing (its content policy forbids it), so it opens from
a disk, in an attachment or behind any server.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from analysis.graph_model import GraphView
from analysis.render import DASH, Column, Panel, Table

WEB = Path(__file__).parent / "web"


def report_html(title: str, summary: str, tables: list[Table | str], data: dict[str, Any]) -> str:
    """The report as one HTML page. `data` is what `analysis.report_data` makes; a text among the tables is shown as
    it is (why there is no table)."""
    sections = "\n".join(table_html(one) if isinstance(one, Table) else f"<p>{escape(one)}</p>" for one in tables)
    return _page(
        "report.html", ("charts.js", "explorer.js", "report.js"), title, data, summary=summary, tables=sections
    )


def explorer_html(view: GraphView, title: str = "") -> str:
    """One trajectory graph as an HTML page: pan, zoom, click or tab to a state for its text, value and actions."""
    name = title or f"Trajectory graph of {view.task or 'group ' + view.group}, {view.estimator}"
    return _page("explorer.html", ("charts.js", "explorer.js"), name, view.to_json())


def _page(template: str, scripts: tuple[str, ...], title: str, data: Any, summary: str = "", tables: str = "") -> str:
    text = (WEB / template).read_text(encoding="utf-8")
    return Template(text).substitute(
        title=escape(title),
        style=(WEB / "style.css").read_text(encoding="utf-8"),
        script="\n".join((WEB / name).read_text(encoding="utf-8") for name in scripts),
        data=_embedded(data),
        summary=escape(summary),
        tables=tables,
    )


def _embedded(data: Any) -> str:
    """Strict JSON that can't end or open a script element, whatever texts it holds."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


# --- a table as HTML --------------------------------------------------------------------------------------------------


def table_html(table: Table) -> str:
    """A `Table` as HTML: panels, then notes; best values bold, published rows apart, reasons of dashes on hover."""
    panels = "\n".join(_panel(table, panel) for panel in table.panels)
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.all_notes())
    below = f'<details class="notes" open><summary>notes</summary><ul>{notes}</ul></details>'
    return f"<h3>{escape(table.title)}</h3>\n{panels}\n{below}"


def _panel(table: Table, panel: Panel) -> str:
    head = "".join(f'<th scope="col" title="{escape(c.unit)}">{escape(c.header)}</th>' for c in panel.columns)
    rows = "".join(_row(table, panel, row) for row in panel.rows)
    title = f"<h4>{escape(panel.title)}</h4>" if panel.title else ""
    detail = f'<p class="detail">{escape(panel.detail)}</p>' if panel.detail else ""
    name = panel.title or table.title
    return (
        f'{title}{detail}<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
        f'<table><thead><tr><th scope="col">method</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _row(table: Table, panel: Panel, row: str) -> str:
    mark = (table.marks or {}).get(row, "")
    style = ' class="published"' if row in table.published else ""
    cells = "".join(_cell(table, row, column) for column in panel.columns)
    return f'<tr{style}><th scope="row">{escape(row + mark)}</th>{cells}</tr>'


def _cell(table: Table, row: str, column: Column) -> str:
    cell = table.cells[row, column.key]
    if cell.mean is None:
        return f'<td title="{escape(cell.reason)}">{DASH}</td>'
    style = ' class="best"' if cell.best else ""
    return f"<td{style}>{escape(column.text(cell))}</td>"
