"""Every registered estimator has a page, and the pages say what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from algorithms import COMMON_OPTIONS, estimators, options_type
from analysis import estimator_docs
from analysis.estimator_docs import PageError, pages, refreshed
from sweeps import cli

FOLDER = Path(__file__).parents[2] / "docs" / "estimators"
NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.mark.parametrize("name", estimators())
def test_the_options_of_a_page_are_those_of_the_code(name):
    text = (FOLDER / f"{name}.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", text, re.MULTILINE))
    own = {field.name: str(field.default) for field in fields(options_type(name)) if field.name not in COMMON_OPTIONS}
    assert table == own


@pytest.mark.parametrize("name", estimators())
def test_a_page_has_all_its_parts(name):
    text = (FOLDER / f"{name}.md").read_text()
    for part in ("## Definition", "## Options", "## Known deviations", "## What the faithfulness runs show"):
        assert part in text
    assert re.search(rf"<!-- faithfulness: {name}\b.*-->\n\n`{name}`, groups of 8 rollouts:\n\n\| world \|", text)
    assert f"({name}.md)" in (FOLDER / "README.md").read_text()


def test_pages_name_no_estimator_that_does_not_exist():
    assert {page.stem for page in pages(FOLDER)} == {*estimators(), "README"}


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(estimator_docs, "_summary", lambda name: (dict(ROW, estimator=name),))
    path = tmp_path / "a.md"
    path.write_text("before\n<!-- faithfulness: grpo graft -->\nold\n<!-- end -->\nafter\n")
    return path


ROW = {"axis": "world", "world": "maze", "success": 0.5, "power": 1.0}
ROW |= dict.fromkeys(estimator_docs.HEADERS, 0.125) | {f"{key}_ci": 0.01 for key in estimator_docs.HEADERS}


class TestRefresh:
    def test_what_is_between_the_marks_is_replaced_and_the_rest_kept(self, page):
        text = refreshed(page)
        assert text.startswith("before\n<!-- faithfulness: grpo graft -->\n\n`grpo`, groups of 8")
        assert text.endswith("<!-- end -->\nafter\n")
        assert "old" not in text
        assert text.count("| maze | 0.50 | 0.12 ±0.01 |") == 2

    def test_the_command_writes_once(self, page, capsys):
        assert cli.main(["estimator-docs", "--folder", str(page.parent)]) == 0
        assert cli.main(["estimator-docs", "--folder", str(page.parent)]) == 0
        assert capsys.readouterr().out.splitlines() == [f"{page}: written", f"{page}: as it was"]

    def test_an_overview_is_a_line_an_estimator(self, page):
        page.write_text("<!-- overview: grpo rtmc -->\n<!-- end -->\n")
        rows = [line for line in refreshed(page).splitlines() if line.startswith(("| grpo", "| rtmc"))]
        assert len(rows) == 2

    def test_pages_without_a_block_and_folders_without_pages_are_errors(self, page):
        page.write_text("nothing\n")
        with pytest.raises(PageError, match="no block to fill"):
            refreshed(page)
        page.unlink()
        with pytest.raises(PageError, match="no page"):
            pages(page.parent)


@pytest.mark.slow
def test_the_numbers_in_the_pages_are_what_the_code_measures():
    for page in pages(FOLDER):
        text, again = page.read_text(), refreshed(page)
        assert NUMBER.sub("#", text) == NUMBER.sub("#", again), page.name
        now, then = ([float(n) for n in NUMBER.findall(t)] for t in (text, again))
        # Another machine may round a last digit otherwise.
        assert now == pytest.approx(then, abs=0.011, rel=0.01), page.name
