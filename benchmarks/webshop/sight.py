"""What an attentive reader can tell about a page: how well each product and option fits the task, from visible text.

Facts for the compact prompt, not for chat models; nothing here looks behind the pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from benchmarks.webshop import menu
from benchmarks.webshop.pages import OPTION, PAGE
from benchmarks.webshop.products import Product
from benchmarks.webshop.session import DONE, ITEM, RESULTS, START, SUB, Session

MOST = 9  # counts above are shown as this
_PRICES = re.compile(r"\$([\d.]+)")


@dataclass
class Memory:
    """Task words found in what was read of each product, by ASIN."""

    found: dict[str, frozenset[str]] = field(default_factory=dict)

    def see(self, session: Session) -> None:
        """Take in the page."""
        state, words = session.state, menu.task_words(session.instruction)
        if state.page == RESULTS:
            for position in state.hits[(state.number - 1) * PAGE : state.number * PAGE]:
                product = session.shop.product(position)
                self._add(product.asin, product.title, words)
        elif state.page in (ITEM, SUB) and session.product is not None:
            for _, text in session.page.nodes[2:]:
                self._add(session.product.asin, text, words)

    def _add(self, asin: str, text: str, words: frozenset[str]) -> None:
        seen = words.intersection(menu.wanted_words(text))
        self.found[asin] = self.found.get(asin, frozenset()) | seen


def facts(session: Session, memory: Memory) -> dict[str, str]:
    """Strings by name; lists are separated by commas. `page` always, the others where they make sense."""
    state = session.state
    if state.page == START:
        return {"page": START}
    if state.page == RESULTS:
        return {"page": RESULTS, "number": _number(state.number), **_results(session, memory)}
    if state.page == DONE or session.product is None:
        return {"page": DONE}
    named = {"page": state.sub.lower() if state.page == SUB else ITEM}
    return {**named, **_item(session, session.product, memory)}


def _results(session: Session, memory: Memory) -> dict[str, str]:
    state = session.state
    shown = [session.shop.product(p) for p in state.hits[(state.number - 1) * PAGE : state.number * PAGE]]
    hits = [len(memory.found[product.asin]) for product in shown]
    best = max(hits, default=0)
    items = []
    for count, product in zip(hits, shown, strict=True):
        words = [_number(count), *(["top"] if count == best else []), _price(session, product)]
        items.append(" ".join([*words, "seen"] if product.asin in state.visited else words))
    return {"items": ",".join(items), "pages": _number(-(-len(state.hits) // PAGE))}


def _item(session: Session, product: Product, memory: Memory) -> dict[str, str]:
    wanted = menu.task_words(session.instruction)
    found = memory.found.get(product.asin, frozenset())
    return {
        "hits": _number(len(found)),
        "missing": _number(len(wanted - found)),
        "price": _price(session, product),
        "options": ",".join(_options(session, wanted)) if session.state.page == ITEM else "",
    }


def _options(session: Session, wanted: frozenset[str]) -> list[str]:
    """Of each value: how it fits ("yes": all its words are wanted, "some", "no"), its option's number, if chosen."""
    chosen, groups = session.state.options, list(session.product.options if session.product else ())
    found = []
    for label, click in session.page.clickables.items():
        if click.kind == OPTION:
            words = menu.wanted_words(label)
            fit = sum(word in wanted for word in words)
            tell = "yes" if words and fit == len(words) else "some" if fit else "no"
            group = f"g{min(groups.index(click.name) + 1, MOST)}"
            found.append(" ".join([tell, group, *(["on"] if chosen.get(click.name) == label else [])]))
    return found[: menu.MOST_OPTIONS]


def _price(session: Session, product: Product) -> str:
    """ "ok" when every listed price is within the task's bound, "range" when only the lowest is, else "over"."""
    limit = menu.price_limit(session.instruction)
    prices = [float(price) for price in _PRICES.findall(product.price_tag)]
    if limit is None or not prices or max(prices) <= limit:
        return "ok"
    return "range" if min(prices) <= limit else "over"


def _number(count: int) -> str:
    return str(min(count, MOST))
