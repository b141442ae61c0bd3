"""The report: one page that fetches nothing, with tables, curves, timing, subtasks, graphs and runs."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

from algorithms import RolloutBatch
from analysis.graph_model import graph_view
from analysis.report import explorer_html, report_html, table_html
from analysis.synthetic import Episode, SyntheticRun, make_config, write_run
from sweeps.cli import main

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
EVIL = '</script><img src=x onerror="document.title=1"> & <b> ${x} $title \u2028'


def rng(seed=1):
    return np.random.default_rng(seed)


@pytest.fixture
def out(tmp_path):
    """GRPO and GRAFT with stored rollouts, a failed run, and hostile text in states and errors."""
    for algorithm, seed in (("grpo", 1), ("grpo", 2), ("graft", 1)):
        run = SyntheticRun(make_config(algorithm, seed), updates=6)
        run.evaluations["seen_games", "after"] = [Episode("pick", i < seed, 0.0, 5) for i in range(4)]
        folder = write_run(tmp_path, run, rng())
        store = folder / "attempts" / "0001" / "rollouts"
        store.mkdir()
        rollouts().write_parquet(store / "000006.parquet")
    write_run(tmp_path, SyntheticRun(make_config("gigpo", 1), state="failed", updates=2), rng())
    return tmp_path


def rollouts():
    """Two trajectories from one start, one solved; the start's text is hostile."""
    return RolloutBatch.from_columns(
        success_reward=10.0,
        group=["g"] * 4,
        trajectory=[0, 0, 1, 1],
        step=[0, 1, 0, 1],
        state=[EVIL, "hall", EVIL, "attic"],
        action=["north", "open", "up", "look"],
        next_state=["hall", "goal", "attic", "attic"],
        valid=[True, True, True, False],
        reward=[0.0, 10.0, 0.0, 0.0],
        success=[True, True, False, False],
    )


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_holds_everything_and_fetches_nothing(out, capsys):
    assert main(["report", "--out", str(out)]) == 2  # a run failed
    path = out / "report.html"
    assert capsys.readouterr().out.strip() == str(path)
    page = path.read_text()
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)="(?!#)', page)  # nothing but links within the page; those to runs are data
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    data = data_of(page)
    (shown,) = data["sets"]
    assert [curve["label"] for curve in shown["curves"]] == ["grpo (n=2)", "gigpo (n=1, unfinished)", "graft (n=1)"]
    assert shown["curves"][0]["x"]["updates"] == [1, 2, 3, 4, 5, 6]
    assert shown["curves"][0]["mean"] == pytest.approx([20, 32, 44, 56, 68, 80])
    assert set(shown["curves"][0]["x"]) == {"updates", "episodes", "seconds"}
    assert shown["subtasks"][0]["bars"][0] == {
        "label": "grpo (n=2)", "color": "#0173b2", "values": [37.5], "errors": [pytest.approx(17.6777)],
    }  # fmt: skip
    assert {timing["label"] for timing in shown["timing"]} == {"grpo", "graft"}
    assert [view["method"] for view in shown["views"]] == ["grpo", "graft"]
    states = {run["method"]: (run["state"], run["reason"]) for run in data["runs"]}
    assert states["gigpo"] == ("failed", "OutOfMemoryError: out of memory (update 2)")
    assert "Not counted: gigpo, seed 1: failed" in page
    for run in data["runs"]:
        assert (out / run["href"]).read_text() == (out / "runs" / run["id"] / "config.yaml").read_text()


def test_hostile_text_stays_text(out):
    main(["report", "--out", str(out)])
    page = (out / "report.html").read_text()
    assert page.count("</script>") == 2
    view = data_of(page)["sets"][0]["views"][0]["view"]
    assert EVIL in [node["text"] for node in view["nodes"]]
    single = explorer_html(graph_view(rollouts(), "g", "graft"), title=EVIL)
    assert single.count("</script>") == 2
    assert "<img" not in single
    assert data_of(single)["nodes"]


def test_a_page_without_runs_says_so(tmp_path, capsys):
    assert main(["report", "--out", str(tmp_path)]) == 2
    page = (tmp_path / "report.html").read_text()
    assert "No runs yet." in page
    assert data_of(page) == {"sets": [], "runs": []}
    assert main(["report", "--out", str(tmp_path / "absent")]) == 1
    assert "no such folder" in capsys.readouterr().err


def test_sets_that_cannot_be_compared_say_why(out):
    shutil.copytree(next((out / "runs").iterdir()), out / "runs" / "copy")
    main(["report", "--out", str(out)])
    assert re.search(r"No comparison of 5 runs: runs \w+ and \w+ are both", (out / "report.html").read_text())


def test_evaluations_that_differ_say_why_and_show_no_bars(out):
    header = next((out / "runs").glob("*/evaluations/seen_games/after.json"))
    header.write_text(json.dumps(json.loads(header.read_text()) | {"list_hash": "another"}))
    main(["report", "--out", str(out)])
    page = (out / "report.html").read_text()
    assert "evaluations of seen_games differ in list_hash" in page
    assert data_of(page)["sets"][0]["subtasks"] == [{"name": "seen_games", "kinds": [], "bars": []}]


def test_a_planned_cell_without_a_run_is_named_and_told_by_the_exit_code(tmp_path, capsys):
    run = SyntheticRun(make_config("grpo", 1), updates=2)
    write_run(tmp_path, run, rng())
    assert main(["report", "--out", str(tmp_path)]) == 0
    cells = [
        {"id": one, "axes": {}, "method": "grpo", "seed": seed, "row": None} for seed, one in ((1, run.id), (2, "none"))
    ]
    (tmp_path / "grids" / "mine").mkdir(parents=True)
    (tmp_path / "grids" / "mine" / "cells.json").write_text(json.dumps({"schema": 1, "grid": "mine", "cells": cells}))
    assert main(["report", "--out", str(tmp_path)]) == 2
    assert "missing: mine: grpo seed 2 (no run)" in capsys.readouterr().out
    assert main(["report", "--out", str(tmp_path), "--where", "seed=1"]) == 0


def test_a_table_in_html_keeps_marks_best_and_reasons(out):
    from analysis.products import make_table
    from analysis.spec import read_spec

    text = table_html(make_table(read_spec("graphhca_table5"), out)[0])
    assert '<tr class="published"><th scope="row">gamma=0.95 (published)‡</th><td class="best">100.0 ±0.0</td>' in text
    assert '<td title="no run">–</td>' in text
    assert report_html("t", "s", [text], {"sets": [], "runs": []}).count("&lt;tr") > 3  # a text is escaped


@pytest.mark.slow
@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Debian packages chromium and chromium-driver are not installed")
class TestInABrowser:
    @pytest.fixture
    def browser(self):
        webdriver = pytest.importorskip("selenium.webdriver")
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        yield driver
        driver.quit()

    def opened(self, browser, path, scheme="light"):
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        browser.get(path.resolve().as_uri())
        assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
        return lambda css: browser.find_element("css selector", css)

    def test_clicking_through_the_page(self, out, browser, tmp_path):
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.support.select import Select

        main(["report", "--out", str(out)])
        find = self.opened(browser, out / "report.html")
        for section in ("tables", "curves", "timing", "subtasks", "graphs", "runs"):
            find(f'nav a[href="#{section}"]').click()
            assert browser.current_url.endswith(f"#{section}")
        find('nav a[href="#curves"]').click()
        curves = find("#curve-charts .chart")
        assert len(curves.find_elements("css selector", "polyline")) == 3
        curves.find_element("xpath", ".//button[text()='episodes']").click()
        assert "episodes" in find("#curve-charts .chart svg").text
        curves.find_element("xpath", ".//button[contains(., 'grpo')]").click()
        assert len(curves.find_elements("css selector", "polyline")) == 2
        assert len(browser.find_elements("css selector", "#timing-charts rect")) == 8  # two methods, four stages
        find('nav a[href="#graphs"]').click()
        Select(find("#graph-view select")).select_by_index(1)
        stage, layer = find(".stage"), find(".stage > g")
        before = layer.get_attribute("transform")
        ActionChains(browser).drag_and_drop_by_offset(stage, 80, 30).perform()
        moved = layer.get_attribute("transform")
        find('button[aria-label="zoom in"]').click()
        assert len({before, moved, layer.get_attribute("transform")}) == 3
        find('button[aria-label="show all"]').click()
        assert layer.get_attribute("transform") == before
        node = next(
            n for n in browser.find_elements("css selector", ".node") if "hall" in n.get_attribute("aria-label")
        )
        ActionChains(browser).move_to_element(node).click().perform()
        text = find(".explorer .state").text
        assert text.startswith("hall")
        assert re.search(r"value [\d.]+; \d+ visits", text)
        assert "open" in text
        Select(find('select[aria-label="highlighted trajectory"]')).select_by_index(1)
        assert len(browser.find_elements("css selector", ".edge.casing")) == 2
        find('nav a[href="#runs"]').click()
        find("#filter").send_keys("gigpo failed")
        assert find("#run-count").text == "1 of 4 runs"
        assert find("#run-table td a").get_attribute("href").endswith("/config.yaml")
        self.screenshot(browser, tmp_path / "page.png")
        self.quiet(browser)

    def test_the_keyboard_reaches_everything(self, out, browser):
        from selenium.webdriver.common.keys import Keys

        main(["report", "--out", str(out)])
        find = self.opened(browser, out / "report.html")
        reached = set()
        for _ in range(120):
            active = browser.switch_to.active_element
            reached.add((active.tag_name, active.get_attribute("id") or active.get_attribute("class") or active.text))
            if active.get_attribute("class") == "stage":
                break
            active.send_keys(Keys.TAB)
        assert {("a", "skip"), ("button", "theme"), ("svg", "stage")} <= reached
        stage, layer = find(".stage"), find(".stage > g")
        before = layer.get_attribute("transform")
        stage.send_keys(Keys.ARROW_RIGHT)
        stage.send_keys("+")
        assert layer.get_attribute("transform") != before
        stage.send_keys("0")
        assert layer.get_attribute("transform") == before
        stage.send_keys("n")
        node = browser.switch_to.active_element
        assert node.get_attribute("data-node") == "0"
        node.send_keys(Keys.ENTER)
        assert "visits" in find(".explorer .state").text
        node.send_keys("n")
        assert browser.switch_to.active_element.get_attribute("data-node") == "1"
        chart = find("#curve-charts svg")
        chart.send_keys(Keys.ARROW_RIGHT)
        assert "grpo (n=2)" in find("#curve-charts .readout").text
        self.quiet(browser)

    def test_light_and_dark_by_system_and_by_button(self, out, browser, tmp_path):
        main(["report", "--out", str(out)])
        page = "return getComputedStyle(document.body).backgroundColor"
        find = self.opened(browser, out / "report.html", "light")
        light = browser.execute_script(page)
        find("#theme").click()
        dark = browser.execute_script(page)
        assert (light, dark) == ("rgb(255, 255, 255)", "rgb(18, 22, 27)")
        find = self.opened(browser, out / "report.html", "dark")
        assert browser.execute_script(page) == dark
        self.screenshot(browser, tmp_path / "dark.png")
        find("#theme").click()
        assert browser.execute_script(page) == light

    def test_the_explorer_alone(self, browser, tmp_path):
        page = tmp_path / "graph.html"
        page.write_text(explorer_html(graph_view(rollouts(), "g", "graft")), encoding="utf-8")
        find = self.opened(browser, page)
        find(".node").click()
        assert "${x} $title" in find(".explorer .state pre").text
        self.quiet(browser)

    def screenshot(self, browser, path):
        from PIL import Image

        assert browser.save_screenshot(str(path))
        with Image.open(path) as image:
            assert image.size[0] > 1000
            assert len(image.convert("RGB").getcolors(1 << 20)) > 20

    def quiet(self, browser):
        """No error on the console and no request but for the page itself."""
        assert browser.get_log("browser") == []
        events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        assert {url.partition("#")[0].rpartition("/")[2] for url in urls} <= {"report.html", "graph.html"}
