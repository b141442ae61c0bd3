"""A `Table` as LaTeX: booktabs, best values in bold, published rows in italics with their mark."""

from __future__ import annotations

from analysis.render import DASH, Column, Panel, Table

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$",
    "[": "{[}",  # after a line's end it would begin an option
    "±": r"$\pm$", DASH: "--", "λ": r"$\lambda$", "γ": r"$\gamma$", "ω": r"$\omega$", "≤": r"$\le$", "<": r"$<$",
    ">": r"$>$", "*": r"$^{*}$",
}  # fmt: skip


def escaped(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def latex(table: Table) -> str:
    r"""One `table` environment with a tabular for each panel and the notes below. Needs `\usepackage{booktabs}`."""
    lines = [r"% \usepackage{booktabs}", r"\begin{table}[t]", r"\centering", rf"\caption{{{escaped(table.title)}}}"]
    for panel in table.panels:
        lines += [r"\medskip", *_tabular(table, panel)]
    lines += [r"\medskip", r"\begin{minipage}{\linewidth}\footnotesize"]
    lines += [escaped(note) + r"\par" for note in table.all_notes()]
    return "\n".join([*lines, r"\end{minipage}", r"\end{table}"]) + "\n"


def _tabular(table: Table, panel: Panel) -> list[str]:
    title = [rf"\textbf{{{escaped(panel.title)}}}\\[2pt]"] if panel.title else []
    head = " & ".join(["Method", *(escaped(column.header) for column in panel.columns)])
    columns = "l" + "r" * len(panel.columns)
    body = [_row(table, panel, row) for row in panel.rows]
    top = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head + r" \\", r"\midrule"]
    detail = [rf"{{\footnotesize {escaped(panel.detail)}}}\\"] if panel.detail else []
    return [*title, *top, *body, r"\bottomrule", r"\end{tabular}\\", *detail]


def _row(table: Table, panel: Panel, row: str) -> str:
    mark = (table.marks or {}).get(row, "")
    name = escaped(row)
    name = (rf"\textit{{{name}}}" if row in table.published else name) + escaped(mark)
    cells = [_cell(table, row, column) for column in panel.columns]
    return " & ".join([name, *cells]) + r" \\"


def _cell(table: Table, row: str, column: Column) -> str:
    cell = table.cells[row, column.key]
    if cell.mean is None:
        return "--"
    mean, std = column.numbers(cell)
    shown = rf"\textbf{{{mean}}}" if cell.best else mean
    spread = rf"{{\scriptsize\,$\pm$\,{std}}}" if std else ""
    mark = cell.mark.strip()
    note = mark if mark.startswith("/") else rf"\textsuperscript{{{escaped(mark.strip('[]()'))}}}"
    return shown + spread + (note if mark else "")
