"""Pages as lists of text nodes, and the two texts the original makes of a page.

`text` joins the stripped nodes with [SEP]. `text_rich` puts every node on a line of its own, marks what can be
clicked and, in front, tells which options are chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.webshop.products import Product

PAGE = 10  # products of a results page
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
_BLANK = " \n\t\f\r"

TEXT, BUTTON, OPTION, LINK = "text", "button", "option", "link"
Node = tuple[str, str]  # kind, text


@dataclass(frozen=True)
class Click:
    """What a clickable stands for: a button, a product link, or a value of the option `name`."""

    kind: str
    name: str = ""


@dataclass(frozen=True)
class Page:
    """Nodes in document order; `clickables` by their names, in the original's order."""

    nodes: tuple[Node, ...]
    clickables: Mapping[str, Click]
    has_search_bar: bool = False


def start(instruction: str) -> Page:
    """The page with the search bar."""
    nodes = _kept([(TEXT, "WebShop"), (TEXT, "Instruction: "), (TEXT, instruction), (BUTTON, "Search")])
    return Page(nodes, {"search": Click(BUTTON)}, has_search_bar=True)


def results(instruction: str, products: Sequence[Product], number: int, total: int) -> Page:
    """Page `number` of the results."""
    turning = [PREVIOUS, NEXT] if number > 1 else [NEXT]
    nodes = _head(instruction, [BACK])
    nodes.append((TEXT, f"Page {number} (Total results: {total})"))
    nodes += [(BUTTON, label) for label in turning]
    for product in products:
        nodes += [(LINK, product.asin), (TEXT, product.title), (TEXT, product.price_tag)]
    clickables = {label.lower(): Click(BUTTON) for label in (BACK, *turning)}
    clickables |= {product.asin.lower(): Click(LINK) for product in products}
    return Page(_kept(nodes), clickables)


def item(instruction: str, product: Product, show_attributes: bool) -> Page:
    """The page of a product. A value of two options, or named like a button, is one clickable: the last option's."""
    nodes = _head(instruction, [BACK, PREVIOUS])
    for name, values in product.options.items():
        nodes.append((TEXT, name))
        nodes += [(OPTION, value) for value in values]
    labels = [*SUB_PAGES[: 4 if show_attributes else 3], BUY]
    nodes += [(TEXT, product.title), (TEXT, f"Price: {product.price_tag}"), (TEXT, "Rating: N.A.")]
    nodes += [(BUTTON, label) for label in labels]
    clickables = {label.lower(): Click(BUTTON) for label in (BACK, PREVIOUS, *labels)}
    for name, values in product.options.items():
        clickables |= {value: Click(OPTION, name.lower()) for value in values}
    return Page(_kept(nodes), clickables)


def sub_page(instruction: str, product: Product, label: str) -> Page:
    """Description, features, reviews (always empty) or attributes of a product."""
    nodes = _head(instruction, [BACK, PREVIOUS])
    if label == "Description":
        nodes.append((TEXT, product.description))
    elif label == "Features":
        nodes += [(TEXT, f" {bullet}") for bullet in product.bullets]
    elif label == "Attributes":
        nodes += [(TEXT, f" {attribute}") for attribute in product.attributes]
        nodes += [(TEXT, text) for text in (product.category, product.query, product.product_category)]
    return Page(_kept(nodes), {BACK.lower(): Click(BUTTON), PREVIOUS.lower(): Click(BUTTON)})


def done(asin: str, options: Mapping[str, str], reward: float) -> Page:
    """The page after a purchase; most of what it names is left empty by the original."""
    texts = ["Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)"]
    texts += ["Purchased", "asin", asin, "options", _html_json(options)]
    for label in ("attrs", "category", "query", "product category"):
        texts += [label, "None"]
    texts += ["Target", "asin", "options", "attrs", "price upper", "instuction text", "category", "product category"]
    texts += ["query", "Goal ", "None", "Reward", "Your score (min 0.0, max 1.0)", str(reward)]
    texts += ["Reward Details ", "None"]
    return Page(_kept([(TEXT, text) for text in texts]), {})


def _head(instruction: str, labels: Iterable[str]) -> list[Node]:
    return [(TEXT, "Instruction:"), (TEXT, instruction), *((BUTTON, label) for label in labels)]


def _kept(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes that the original's parser keeps: blank text with a line break vanishes, other blank text is a space."""
    kept: list[Node] = []
    for kind, text in nodes:
        if text.strip(_BLANK):
            kept.append((kind, text))
        elif text and "\n" not in text:
            kept.append((kind, " "))
    return tuple(kept)


def _html_json(options: Mapping[str, str]) -> str:
    """JSON as templates write it: keys sorted, and characters of markup escaped."""
    text = json.dumps(options, sort_keys=True)
    for sign in "<>&'":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def plain_text(page: Page) -> str:
    """The observation in `text` mode."""
    return " [SEP] ".join([text.strip() for _, text in page.nodes])


def rich_text(page: Page, url: str, visited: Iterable[str]) -> str:
    """The observation in `text_rich` mode. An option shows as clicked when its value stands quoted in the URL, a
    product when it was visited since the last start page."""
    seen = set(visited)
    front, lines = "", []
    for kind, text in page.nodes:
        if kind == OPTION and f'"{text}"' in url:
            front = f"You have clicked {text}.\n{front}"
            lines.append(f"  [clicked button] {text} [clicked button_]\n")
        elif kind == OPTION:
            lines.append(f"  [button] {text} [button_]\n")
        elif kind == LINK and text in seen:
            lines.append(f"\n[clicked button] {text} [clicked button_]\n")
        elif kind == LINK:
            lines.append(f"\n[button] {text} [button_]\n")
        else:
            lines.append(f"[button] {text} [button_]\n" if kind == BUTTON else f"{text}\n")
    return front + "".join(lines)
