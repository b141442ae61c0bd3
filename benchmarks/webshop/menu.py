"""Short commands: a numbered menu of what can be done on a page, for a policy that cannot write queries.

    search 1..6     a query made of the task's words (see `queries`)
    open 1..10      a product of the results page
    choose 1..40    a value of an option, counted over all options of the product's page
    buy, back, prev, next, description, features, reviews, attributes

Each stands for one action of the original. They hold no brackets, so none of them is an action by itself.
"""

from __future__ import annotations

import re
from functools import lru_cache

from benchmarks.webshop.pages import BUTTON, LINK, Page

QUERIES = 6
MOST_OPTIONS = 40
BUTTONS = {
    "buy now": "buy", "back to search": "back", "< prev": "prev", "next >": "next", "description": "description",
    "features": "features", "reviews": "reviews", "attributes": "attributes",
}  # fmt: skip
_PRICE = re.compile(r",? and price lower than [\d.]+ dollars$")
_WORD = re.compile(r"[^\s,;:!?\"()\[\]]+")
_FILLERS = (
    "i im i'm i'd am a an the it its is are be to for of in on and or that which with me you my some any need want "
    "looking look like would could can find buy get should have has please one that's wanting am also must new"
)
FILLERS = frozenset(_FILLERS.split())


def commands(page: Page, instruction: str) -> dict[str, str]:
    """Short command -> action, in a fixed order."""
    if page.has_search_bar:
        return {f"search {number}": f"search[{query}]" for number, query in enumerate(queries(instruction), start=1)}
    found: dict[str, str] = {}
    opened = chosen = 0
    for label, click in page.clickables.items():
        if click.kind == BUTTON:
            found[BUTTONS[label]] = f"click[{label}]"
        elif click.kind == LINK:
            opened += 1
            found[f"open {opened}"] = f"click[{label}]"
        else:
            chosen += 1
            if chosen <= MOST_OPTIONS:
                found[f"choose {chosen}"] = f"click[{label}]"
    return found


@lru_cache(maxsize=4096)
def queries(instruction: str) -> tuple[str, ...]:
    """Six queries of the task's own words, most first: all of them; those that tell something; these without what
    follows the first comma (options, as a rule); the last three, and the first three, of these; what follows it."""
    text = _PRICE.sub("", instruction.lower())
    head, _, tail = text.partition(",")
    content = wanted_words(head) or _WORD.findall(head) or ["product"]
    lists = (
        _WORD.findall(text), wanted_words(text), content, content[-3:], content[:3], wanted_words(tail) or content,
    )  # fmt: skip
    return tuple(" ".join(words) or "product" for words in lists)


def wanted_words(text: str) -> list[str]:
    """Words of a text that tell something, in order."""
    words = (word.strip(".'") for word in _WORD.findall(text.lower()))
    return [word for word in words if word and word not in FILLERS]


@lru_cache(maxsize=4096)
def task_words(instruction: str) -> frozenset[str]:
    """The words a product should have, price clause left out."""
    return frozenset(wanted_words(_PRICE.sub("", instruction)))


def price_limit(instruction: str) -> float | None:
    """The price bound that the task states; None without one."""
    found = re.search(r"price lower than ([\d.]+) dollars$", instruction)
    return float(found[1]) if found else None
