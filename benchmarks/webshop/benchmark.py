"""How fast the shop is here: `python -m benchmarks.webshop.benchmark`.

Builds made catalogues of growing size and plays the same actions on each: queries made of goals of the smallest one,
and clicks by place on the page. Prints CPU seconds, and what the growth predicts for the official 1,181,436 products.
Sizes 1,000 and 100,000 take about two minutes; catalogues are kept (see `default`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.webshop import default, generator, make, menu
from benchmarks.webshop.build import build
from benchmarks.webshop.goals import GoalList, held_out_places
from benchmarks.webshop.pages import BUTTON
from benchmarks.webshop.places import KINDS
from benchmarks.webshop.session import Session
from benchmarks.webshop.shop import Shop, engine
from benchmarks.webshop.store import Store

OFFICIAL = 1_181_436  # products of the official catalogue
ORIGINAL = 27  # steps a CPU second of the original with 1,000 products, searches and clicks mixed
_CLICKS = 30  # of an episode


@dataclass(frozen=True)
class Costs:
    """What one catalogue costs: CPU seconds, bytes."""

    products: int
    build: float
    build_memory: float
    disk: float
    opening: float
    search: float
    search_again: float
    click: float
    memory: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--products", type=int, nargs="+", default=[1000, 100_000], help="sizes (default 1000 100000)")
    parser.add_argument("--queries", type=int, default=300, help="different queries (default 300)")
    parser.add_argument("--episodes", type=int, default=200, help=f"episodes of {_CLICKS} clicks (default 200)")
    chosen = parser.parse_args(arguments)
    sizes = sorted(chosen.products)
    goals = [task.payload for task in make(data=f"made-{sizes[0]}").task_set("train").tasks]
    queries = [menu.queries(goal["instruction_text"])[1] for goal in goals][: chosen.queries]
    found = [_costs(size, queries, goals[0], chosen.episodes) for size in sizes]
    _print(found)


def _costs(size: int, queries: list[str], goal: Mapping[str, Any], episodes: int) -> Costs:
    with tempfile.TemporaryDirectory() as folder:
        paths = _in_process(generator.write, Path(folder), size, default.SEED)
        built, build_memory = _in_process(_build, paths, Path(folder) / "store")
    _in_process(default.made_folder, size)  # kept from here on
    opening, search, again, click, memory = _in_process(_play, size, queries, goal, episodes)
    disk = Store(default.made_folder(size)).size
    return Costs(size, built, build_memory, disk, opening, search, again, click, memory)


def _in_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in a process of its own, so that memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _build(paths: list[Path], out: Path) -> tuple[float, float]:
    """(CPU seconds, peak bytes) of building a catalogue."""
    before = time.process_time()
    build(paths, out)
    return time.process_time() - before, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _play(
    size: int, queries: list[str], goal: Mapping[str, Any], episodes: int
) -> tuple[float, float, float, float, float]:
    """(opening, search, search again, click in CPU seconds, private bytes of this process)."""
    folder = default.made_folder(size)
    before = time.process_time()
    store = Store(folder)
    opening = time.process_time() - before
    lists = [GoalList(store, kind, "fixed", 0) for kind in KINDS]  # every process of a run has one, too
    places = [held_out_places(goals) for goals in lists]
    for goals, where in zip(lists, places, strict=True):
        goals.goal(where["train"][-1])
    shop = Shop(store, engine("lucene", store))
    session = Session(shop, goal, lambda position, product: product.prices[0])
    search = _seconds(session, [f"search[{query}]" for query in queries])
    again = _seconds(session, [f"search[{query}]" for query in queries])
    _clicks(session, queries, episodes)  # products come into memory
    click = _clicks(session, queries, episodes)
    memory = _private_bytes()  # while the goals are there
    del lists, places
    return opening, search, again, click, memory


def _seconds(session: Session, actions: list[str]) -> float:
    """CPU seconds an action, observation included."""
    before = time.process_time()
    for action in actions:
        session.step(action)
        session.text()
    return (time.process_time() - before) / len(actions)


def _clicks(session: Session, queries: list[str], episodes: int) -> float:
    """CPU seconds a click: every episode starts from a search and clicks by place, the same on every catalogue."""
    rng, spent, count = random.Random(0), 0.0, 0
    for number in range(episodes):
        session.step("click[back to search]")
        session.step(f"search[{queries[number % len(queries)]}]")
        before = time.process_time()
        for _ in range(_CLICKS):
            session.step(f"click[{_label(session, rng)}]")
            session.text()
            count += 1
        spent += time.process_time() - before
    return spent / count


def _label(session: Session, rng: random.Random) -> str:
    """A clickable: half the time a product or value, never one that ends the episode or starts it anew."""
    labels = [label for label in session.page.clickables if label not in ("buy now", "back to search")]
    others = [label for label in labels if session.page.clickables[label].kind != BUTTON]
    return rng.choice(others if others and rng.random() < 0.5 else labels)


def _private_bytes() -> float:
    """Memory that only this process has; pages of files, even of those just written, are every process's."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024.0 * sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def _print(found: list[Costs]) -> None:
    out = sys.stdout.write
    out(f"{'products':>10} {'build s':>8} {'peak MB':>8} {'disk MB':>8} {'open ms':>8} {'search ms':>10}")
    out(f" {'searches/s':>11} {'again/s':>9} {'clicks/s':>9} {'x original':>11} {'private MB':>11}\n")
    for costs in found:
        out(
            f"{costs.products:>10} {costs.build:8.1f} {costs.build_memory / 1e6:8.0f} {costs.disk / 1e6:8.1f} "
            f"{1000 * costs.opening:8.2f} {1000 * costs.search:10.2f} {1 / costs.search:11.0f} "
            f"{1 / costs.search_again:9.0f} {1 / costs.click:9.0f} {1 / costs.click / ORIGINAL:11.0f} "
            f"{costs.memory / 1e6:11.1f}\n"
        )
    if len(found) > 1:
        _predict(found[0], found[-1])


def _predict(small: Costs, large: Costs) -> None:
    """Straight lines through the smallest and the largest catalogue."""
    grown = large.products / small.products

    def at_official(name: str) -> float:
        low, high = getattr(small, name), getattr(large, name)
        slope = (high - low) / (large.products - small.products)
        return low + slope * (OFFICIAL - small.products)

    # full caches and write buffers do not grow any more; a number a product in the search index does
    memory = large.memory + 8 * (OFFICIAL - large.products)
    sys.stdout.write(
        f"\n{grown:.0f} times the products: a search takes {large.search / small.search:.1f} times as long, a click "
        f"{large.click / small.click:.2f} times\n"
        f"predicted for {OFFICIAL:,} products of this kind: search {1000 * at_official('search'):.0f} ms, build "
        f"{at_official('build') / 60:.0f} min, {at_official('disk') / 1e9:.1f} GB on disk, {memory / 1e6:.0f} MB a "
        "process\n"
    )


if __name__ == "__main__":
    main()
