from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from webshop_golden import GOLDEN

from benchmarks.webshop import default
from benchmarks.webshop.build import build
from benchmarks.webshop.generator import MADE
from benchmarks.webshop.goals import Goal, GoalList
from benchmarks.webshop.store import Store

INS = {"human": "items_ins_v2.json", "synthetic": "items_ins_v2_synth.json"}


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Built catalogues of these tests lie in a folder of their own."""
    patch = pytest.MonkeyPatch()
    patch.setenv("CREDITBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    default.open_store.cache_clear()
    yield
    patch.undo()
    default.open_store.cache_clear()


@pytest.fixture(scope="session")
def original_stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    """The hand-made catalogue as the original was run on it, by kind of goals, with the same tagger's nouns."""
    folder = tmp_path_factory.mktemp("original")
    tagger = f"table:{GOLDEN / 'golden_nouns_sm38.json'}"
    for kind, ins in INS.items():
        files = [MADE / "items_shuffle.json", MADE / ins, MADE / "items_human_ins.json"]
        build(files, folder / kind, tagger=tagger)
    return {kind: Store(folder / kind) for kind in INS}


@pytest.fixture(scope="session")
def original_goals(original_stores: dict[str, Store]) -> dict[str, GoalList]:
    """Goals with the prices and bounds that the original drew: its generator was seeded with 42 before."""
    return {kind: GoalList(store, kind, "sequential", 42) for kind, store in original_stores.items()}


@pytest.fixture(scope="session")
def ordered_goals(original_goals: dict[str, GoalList]) -> dict[str, list[Goal]]:
    return {kind: [found.goal(index) for index in found.order()] for kind, found in original_goals.items()}


@pytest.fixture
def rows() -> Callable[..., list[dict[str, Any]]]:
    """Rows of small made-up products."""

    def make(count: int, **fields: Any) -> list[dict[str, Any]]:
        return [
            {
                "asin": f"P{number:04}",
                "name": f"Maker Wooden Chair {number}",
                "full_description": "A chair.",
                "small_description": ["sturdy"],
                "pricing": "$20.00",
                "customization_options": {},
                "category": "garden",
                "query": "chairs",
                "product_category": "Home › Chairs",
                **fields,
            }
            for number in range(count)
        ]

    return make


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[Path]]:
    """The two files that a catalogue needs, written from rows."""

    def write(rows: list[dict[str, Any]], instructions: bool = True) -> list[Path]:
        entry = {"attributes": ["wooden"], "instruction": "Find me wooden chairs", "instruction_attributes": ["wooden"]}
        ins = {row["asin"]: entry if instructions else {"attributes": ["wooden"]} for row in rows}
        paths = [tmp_path / "products.json", tmp_path / "ins.json"]
        for path, value in zip(paths, (rows, ins), strict=True):
            path.write_text(json.dumps(value), encoding="utf-8")
        return paths

    return write
