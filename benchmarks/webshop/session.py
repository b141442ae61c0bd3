"""One visit to the shop: a state machine from actions to pages, with the original's navigation and its oddities."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.webshop import pages
from benchmarks.webshop.pages import LINK, OPTION, PAGE, Page
from benchmarks.webshop.products import Product
from benchmarks.webshop.reward import purchase_reward
from benchmarks.webshop.shop import QueryError, Shop

START, RESULTS, ITEM, SUB, DONE = "start", "results", "item", "sub", "done"
_URL_NAMES = {RESULTS: "search_results", ITEM: "item_page", SUB: "item_sub_page", DONE: "done"}

PriceOf = Callable[[int, Product], float]


@dataclass(frozen=True)
class State:
    """Where a session stands. `hits` are the positions of all results of the newest search."""

    page: str = START
    keywords: tuple[str, ...] = ()
    number: int = 1
    hits: tuple[int, ...] = ()
    position: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    visited: frozenset[str] = frozenset()
    sub: str = ""
    reward: float = 0.0


@dataclass(frozen=True)
class Step:
    """What an action did. `accepted` is False for what the original ignores (or dies of)."""

    accepted: bool
    reward: float = 0
    done: bool = False
    parts: Mapping[str, Any] | None = None


def parse_action(action: str) -> tuple[str, str] | None:
    """(name, argument) of `name[argument]` as the original's greedy pattern reads it, or None.

    Both parts have at least one character, the last bracket that leaves room for an argument opens it, the last
    closing one ends it, what follows is ignored, and a line break ends the text.
    """
    line = action.split("\n", 1)[0]
    close = line.rfind("]")
    opened = line.rfind("[", 1, max(close - 1, 1))
    return None if opened < 1 else (line[:opened], line[opened + 1 : close])


class Session:
    """A visit with one goal.

    goal             see `goals.GoalList.goal`
    price_of         the price of a product, unseen by the agent
    show_attributes  whether products have a page that tells their attributes
    """

    def __init__(
        self, shop: Shop, goal: Mapping[str, Any], price_of: PriceOf, show_attributes: bool = False, name: str = "0"
    ) -> None:
        self.shop, self.goal, self._price_of = shop, goal, price_of
        self._show_attributes, self._name = show_attributes, name
        self.instruction: str = goal["instruction_text"]
        self._enter(State())

    def _enter(self, state: State) -> None:
        self.state = state
        self.page: Page = self._render(state)

    @property
    def product(self) -> Product | None:
        """The product being looked at, or bought."""
        return None if self.state.position is None else self.shop.product(self.state.position)

    def available(self) -> dict[str, Any]:
        """What can be done, in the original's form."""
        return {"has_search_bar": self.page.has_search_bar, "clickables": list(self.page.clickables)}

    def text(self, rich: bool = False) -> str:
        """The observation."""
        return pages.rich_text(self.page, self._url(), self.state.visited) if rich else pages.plain_text(self.page)

    def step(self, action: str) -> Step:
        """Do an action. Anything that is none changes nothing and is not accepted; nothing raises."""
        parsed = parse_action(action)
        if parsed is None:
            return Step(False)
        name, argument = parsed[0], parsed[1].lower()
        if name == "search":
            return self._search(tuple(argument.split(" ")), 1)
        if name == "click" and argument != "search" and argument in self.page.clickables:
            return self._click(argument)
        return Step(False)

    # ------------------------------------------------------------------------------------------------ clicks
    def _click(self, label: str) -> Step:
        state = self.state
        if label == "buy now":
            return self._buy()
        if label == "back to search":
            return self._go(State())
        page = self._page_in_url() if label in ("next >", "< prev") else ""
        if label == "next >" and page == RESULTS:
            return self._search(state.keywords, state.number + 1)
        if label == "< prev" and page == RESULTS:
            return self._search(state.keywords, state.number - 1)
        if label == "< prev" and page == SUB:
            return self._go(replace(state, page=ITEM, sub=""))
        if label == "< prev" and page == ITEM:
            return self._search(state.keywords, state.number)
        if label.capitalize() in pages.SUB_PAGES:
            return self._go(replace(state, page=SUB, sub=label.capitalize()))
        return self._open(label)

    def _go(self, state: State) -> Step:
        self._enter(state)
        return Step(True, 0.0)

    def _search(self, keywords: tuple[str, ...], number: int) -> Step:
        try:
            hits = self.shop.find(keywords)
        except QueryError:
            return Step(False)
        return self._go(State(RESULTS, keywords, number, hits, visited=self.state.visited))

    def _open(self, label: str) -> Step:
        """A product link, or a value of an option."""
        state, click = self.state, self.page.clickables[label]
        if click.kind == LINK:
            position = self.shop.position(label.upper())
            if position is None:
                return Step(False)
            visited = state.visited | {label.upper()}
            return self._go(replace(state, page=ITEM, position=position, visited=visited))
        if click.kind == OPTION:
            state = replace(state, options={**state.options, click.name: label})
        return self._go(replace(state, page=ITEM, sub=""))

    def _buy(self) -> Step:
        position, options = self.state.position, self.state.options
        assert position is not None  # only a product's page has the button
        product = self.shop.product(position)
        reward, parts = purchase_reward(product, options, self._price_of(position, product), self.goal)
        self._enter(replace(self.state, page=DONE, reward=reward))
        return Step(True, reward, True, parts)

    # ------------------------------------------------------------------------------------------------ pages
    def _render(self, state: State) -> Page:
        if state.page == START:
            return pages.start(self.instruction)
        if state.page == RESULTS:
            shown = state.hits[(state.number - 1) * PAGE : state.number * PAGE]
            products = [self.shop.product(position) for position in shown]
            return pages.results(self.instruction, products, state.number, len(state.hits))
        assert state.position is not None
        product = self.shop.product(state.position)
        if state.page == ITEM:
            return pages.item(self.instruction, product, self._show_attributes)
        if state.page == SUB:
            return pages.sub_page(self.instruction, product, state.sub)
        return pages.done(product.asin, state.options, state.reward)

    def _url(self) -> str:
        """The address of the page: the original looks things up in it, so words of the query can mislead it."""
        state = self.state
        if state.page == START:
            return f"/{self._name}"
        keywords, product = "+".join(state.keywords), self.product
        if state.page == RESULTS:
            return f"/search_results/{self._name}/{keywords}/{state.number}"
        assert product is not None
        if state.page == ITEM:
            place = f"{product.asin}/{keywords}/{state.number}/{json.dumps(state.options)}"
            return f"/item_page/{self._name}/{place}"
        if state.page == SUB:
            place = f"{product.asin}/{keywords}/{state.number}/{state.sub}/{dict(state.options)}"
            return f"/item_sub_page/{self._name}/{place}"
        return f"/done/{self._name}/{product.asin}/{dict(state.options)}"

    def _page_in_url(self) -> str:
        """Which page the original believes to be on: the first of these names inside the address."""
        url = self._url()
        return next((page for page, name in _URL_NAMES.items() if name in url), START)
