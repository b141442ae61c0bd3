"""Goals: what an episode asks for, their order, prices and bounds, and the splits.

- fixed: the published order (shuffle with seed 233); prices and bounds depend on the product and goal alone
- official: the same order; prices and bounds from one seeded stream, drawn as the original draws them
- verl_agent: the verl-agent family's, where every worker shuffles by a seed of its own; train and test overlap
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from benchmarks.webshop.places import SHUFFLE_SEED, shuffled
from benchmarks.webshop.products import Product
from benchmarks.webshop.store import GoalSource, Store

NO_BOUND = 1_000_000
_GRID = [10.0 * step for step in range(1, 100)]
_NONE = -1  # no bound, where bounds are whole numbers
SPLITS = ("train", "eval", "test")
_PUBLISHED = {"test": 500, "eval": 1000}  # sizes of the first splits of the official list
_SMALL = 6000  # fewer goals are split in the same proportion to this number
WORKERS = {"train": 16, "test": 128}  # of a verl-agent run
RESETS = {"train": 150, "test": 1}

Goal = dict[str, Any]


class Prices(Protocol):
    """What products cost (a range has one price, unseen by the agent) and how high a goal lets the price be."""

    def price(self, position: int, product: Product) -> float: ...

    def bound(self, source: GoalSource, price: float) -> float | None: ...


class FixedPrices:
    """Prices and bounds that depend on (seed, catalogue position, goal), never on what was drawn before."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def price(self, position: int, product: Product) -> float:
        """The price of a product."""
        return self.between(position, *ends(product))

    def between(self, position: int, low: float, high: float) -> float:
        """A price between two ends."""
        return low if low == high else self._rng("price", position).uniform(low, high)

    def bound(self, source: GoalSource, price: float) -> float | None:
        """The highest price a goal allows; None for no bound."""
        return draw_bound(self._rng("bound", source.position, source.number), price)

    def _rng(self, *what: Any) -> random.Random:
        return random.Random("/".join(map(str, (self._seed, *what))))


class SequentialPrices:
    """One stream for all prices in catalogue order, then all bounds in goal order, as the original draws them."""

    def __init__(self, store: Store, sources: Iterable[GoalSource], seed: int) -> None:
        rng = random.Random(seed)
        self._prices = np.full(len(store), math.nan)
        for position, low, high in store.ranges():
            self._prices[position] = rng.uniform(low, high)
        bounds = (draw_bound(rng, self.between(s.position, s.low, s.high)) for s in sources)
        self._bounds = np.fromiter((_NONE if bound is None else int(bound) for bound in bounds), dtype=np.int16)

    def price(self, position: int, product: Product) -> float:
        """The price of a product."""
        return self.between(position, *ends(product))

    def between(self, position: int, low: float, high: float) -> float:
        """A price between two ends."""
        drawn = float(self._prices[position])
        return low if math.isnan(drawn) else drawn

    def bound(self, source: GoalSource, price: float) -> float | None:
        """The highest price a goal allows; None for no bound."""
        drawn = int(self._bounds[source.number])
        return None if drawn == _NONE else float(drawn)


def ends(product: Product) -> tuple[float, float]:
    """Lowest and highest price, as listed."""
    return product.prices[0], product.prices[-1]


def draw_bound(rng: random.Random, price: float) -> float | None:
    """The larger of two draws from the four multiples of ten above a price; None where fewer than two are left."""
    above = [step for step in _GRID if step > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else None


class GoalList:
    """All goals of one kind in the catalogue's order, made when asked for; with prices "sequential", memory holds a
    number a product and one a source, else nothing that grows."""

    def __init__(self, store: Store, kind: str, prices: str, seed: int) -> None:
        self.store, self.kind = store, kind
        self.prices: FixedPrices | SequentialPrices = (
            SequentialPrices(store, store.goal_sources(kind), seed) if prices == "sequential" else FixedPrices(seed)
        )
        self._ends = store.places.ends[kind]

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __iter__(self) -> Iterator[Goal]:
        return (self.goal(index) for index in range(len(self)))

    def order(self, seed: int = SHUFFLE_SEED) -> np.ndarray:
        """Indices in the order that a shuffle with this seed gives."""
        return self.store.places.order[self.kind] if seed == SHUFFLE_SEED else shuffled(len(self), seed)

    def goal(self, index: int) -> Goal:
        """The goal with everything that an episode needs, as strict JSON."""
        index = int(index)  # of numpy's kind if it comes from `order`
        number = int(np.searchsorted(self._ends, index, side="right"))
        source = self.store.goal_source(self.kind, number)
        variant = index - (int(self._ends[number]) - source.variants)
        product = self.store.product(source.position)
        options = source.options if self.kind == "human" else combination(product.options, variant)
        price = self.prices.between(source.position, source.low, source.high)
        bound = self.prices.bound(source, price)
        return {
            "asin": product.asin,
            "category": product.category,
            "query": product.query,
            "name": product.title,
            "product_category": product.product_category,
            "instruction_text": source.instruction + _options_clause(options) + _price_clause(bound),
            "attributes": source.attributes,
            "price_upper": NO_BOUND if bound is None else bound,
            "goal_options": options,
            "weight": self._weight(source),
            "nouns": product.nouns,
            "number": source.number,
            "variant": variant,
        }

    def _weight(self, source: GoalSource) -> float:
        """The chance to be drawn by the original: rare attributes weigh more in synthetic goals."""
        if self.kind == "human":
            return 1
        return sum(1.0 / self.store.uses(attribute) for attribute in source.attributes) / len(source.attributes)


def combination(options: dict[str, list[str]], variant: int) -> dict[str, str]:
    """One value of every option, names sorted, the last one changing fastest."""
    chosen: dict[str, str] = {}
    for name in sorted(options, reverse=True):
        variant, place = divmod(variant, len(options[name]))
        chosen[name] = options[name][place]
    return dict(sorted(chosen.items()))


def _options_clause(options: Any) -> str:
    if not isinstance(options, dict) or not options:
        return ""
    return " with " + ", and ".join(f"{name}: {value}" for name, value in options.items())


def _price_clause(bound: float | None) -> str:
    return "" if bound is None else f", and price lower than {bound:.2f} dollars"


def goal_id(goal: Goal) -> str:
    """Stable over machines and modes: ASIN, number of the source, variant."""
    return f"{goal['asin']}/{goal['number']}/{goal['variant']}"


def digest(goal: Goal) -> str:
    """16 hex digits over the goal's content."""
    return hashlib.sha256(json.dumps(goal, sort_keys=True).encode()).hexdigest()[:16]


def split_bounds(total: int) -> dict[str, range]:
    """Places of each split in the shuffled list: test 0-499, eval 500-1499, train from 1500; in the same proportion
    to the whole (a twelfth, a sixth, the rest) where the list has fewer than 6,000 goals."""
    scale = min(1.0, total / _SMALL)
    test = max(1, int(_PUBLISHED["test"] * scale))
    held = test + max(1, int(_PUBLISHED["eval"] * scale))
    return {"test": range(test), "eval": range(test, held), "train": range(held, total)}


def held_out_places(goals: GoalList) -> dict[str, np.ndarray]:
    """Indices of each split's goals, in order, in one canonical list for all workers."""
    order = goals.order()
    return {split: order[places.start : places.stop] for split, places in split_bounds(len(goals)).items()}


def worker_places(goals: GoalList, split: str, seed: int) -> np.ndarray:
    """Indices that verl-agent's workers play, reset by reset: 16 groups in training, 128 in validation (`test`).

    Worker w shuffles the goals with seed + w (validation: seed + 1000 + w); each reset draws different places, the
    same for all draws of numpy's RandomState(seed), from 500 on in training and below 500 in validation.
    """
    base, workers = (seed if split == "train" else seed + 1000), WORKERS[split]
    held = min(500, len(goals) // 2)
    pool = range(held, len(goals)) if split == "train" else range(held)
    if len(pool) < workers:
        raise ValueError(f"goals=verl_agent needs {workers} goals for {split}, {goals.store.name} has {len(pool)}")
    rng = np.random.RandomState(base)
    orders = [goals.order(base + worker) for worker in range(workers)]
    draws = [rng.choice(pool, size=workers, replace=False) for _ in range(RESETS[split])]
    return np.array([orders[worker][place] for draw in draws for worker, place in enumerate(draw)], dtype=np.intc)
