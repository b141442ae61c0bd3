"""WebShop's reward of a purchase, exactly (Yao et al., arXiv:2207.01206, as the environment computes it today).

    total = r_type (A + O + P) / (attributes + options + 1)

A and O count matched attributes and options, P is 1 within the price bound, r_type compares the kind of product.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.webshop.products import Product

THRESHOLD = 85  # a similarity in percent has to be above it
# The order decides: the first color that is part of a text stands for it (WebShop, MIT, Princeton NLP).
_COLORS = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel "
    "camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry "
    "cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green "
    "grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot "
    "midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple "
    "rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan "
    "taupe teal tiger turquoise violet walnut wheat white wine yellow"
)
COLORS = tuple(_COLORS.split())
_LATIN = dict.fromkeys(range(0x80, 0x100))  # what the original's fuzzy matching deletes first

Option = str | tuple[str, str]


def purchase_reward(
    product: Product, options: Mapping[str, str], price: float, goal: Mapping[str, Any]
) -> tuple[float, dict[str, Any]]:
    """(total, parts) of buying `product` with chosen `options` (name to value) at `price`.

    `goal` has attributes, goal_options (a list of values, or name to value), price_upper, query, product_category and
    nouns. `parts` has the original's keys: r_type, r_att, w_att, query_match, category_match, title_score, r_price,
    w_price, and r_option, w_option where the goal asks for options.
    """
    wanted = goal_options(goal)
    kind = type_reward(product, goal)
    attributes = matched_attributes(product, goal["attributes"])
    chosen = matched_options(options.values(), wanted)
    affordable = price <= goal["price_upper"]
    parts = len(goal["attributes"]) + len(wanted) + 1
    total = (attributes + chosen + affordable) / parts * kind["r_type"]
    info = {
        "r_type": kind["r_type"],
        "r_att": attributes / len(goal["attributes"]),
        "w_att": len(goal["attributes"]) / parts,
        "query_match": kind["query_match"],
        "category_match": kind["category_match"],
        "title_score": kind["title_score"],
        "r_price": affordable,
        "w_price": 1 / parts,
    }
    if wanted:
        info |= {"r_option": chosen / len(wanted), "w_option": len(wanted) / parts}
    return total, info


def goal_options(goal: Mapping[str, Any]) -> list[Option]:
    """What the goal asks for: values, or (name, value) pairs where it is synthetic; pairs are compared as a whole."""
    options = goal["goal_options"]
    return list(options.items()) if isinstance(options, Mapping) else list(options)


def type_reward(product: Product, goal: Mapping[str, Any]) -> dict[str, Any]:
    """r_type, and what it is made of: equal queries, two common parts of the category, share of common nouns."""
    query_match = product.query == goal["query"]
    category_match = len(_parts(product.product_category) & _parts(goal["product_category"])) >= 2
    wanted: Sequence[str] = goal["nouns"]
    score = len(set(product.nouns) & set(wanted)) / len(wanted) if wanted else 0.2
    if score == 0.0:
        r_type = 0.0
    elif score < 0.1:
        r_type = 0.1
    else:
        r_type = 1.0 if query_match or category_match or score > 0.2 else 0.5
    return {"r_type": r_type, "query_match": query_match, "category_match": category_match, "title_score": score}


def _parts(category: str) -> set[str]:
    return {part.strip() for part in category.split("›")}


def matched_attributes(product: Product, wanted: Sequence[str]) -> int:
    """How many wanted attributes the product has: similar to one of its own, or part of its texts."""
    texts = product.searchable
    return sum(
        any(similar(own, attribute) for own in product.attributes) or any(attribute in text for text in texts)
        for attribute in wanted
    )


def matched_options(chosen: Iterable[str], wanted: Sequence[Option]) -> int:
    """How many wanted options some chosen value resembles; names do not matter."""
    values = [plain_color(value) for value in chosen]
    return sum(any(similar(value, plain_color(option)) for value in values) for option in wanted)


def plain_color(option: Option) -> Option:
    """The first listed color inside a text, else the option. Of a pair only a whole member counts."""
    return next((color for color in COLORS if color in option), option)


@functools.lru_cache(maxsize=100_000)
def similar(one: Option, other: Option) -> bool:
    """Whether the token set ratio of two texts, rounded to a whole percent, is above the threshold."""
    from rapidfuzz import fuzz, utils

    first, second = (utils.default_process(str(text).translate(_LATIN)) for text in (one, other))
    if not first or not second:
        return False
    return round(fuzz.token_set_ratio(first, second)) > THRESHOLD
