"""Made products in the official files' format: any number of them, the same for the same seed.

Each kind of product (face moisturizers, running shoes, ...) has its types, attributes, options and prices; products of
a kind differ in a few of them, so that a search finds many that nearly fit. Some attributes stand in the title, some in
the features alone; some prices are ranges, some are missing.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

MADE = Path(__file__).parent / "made"
HAND_MADE = ("items_shuffle.json", "items_ins_v2_synth.json", "items_human_ins.json")
_HUMAN = 0.85  # share of products with a human-like instruction
_RANGE, _NO_PRICE = 0.12, 0.03  # shares of products

Row = dict[str, Any]


@cache
def _vocabulary() -> dict[str, Any]:
    vocabulary: dict[str, Any] = json.loads((MADE / "vocabulary.json").read_text(encoding="utf-8"))
    return vocabulary


def entries(count: int, seed: int) -> Iterator[tuple[Row, Row, list[Row]]]:
    """`count` products: (product row, ins entry, human instructions)."""
    vocabulary = _vocabulary()
    rng = random.Random(f"webshop/{seed}")
    brands = [_brand(rng) for _ in range(max(12, int(count**0.5)))]
    for number in range(count):
        kind = vocabulary["kinds"][number % len(vocabulary["kinds"])]
        yield _entry(rng, kind, rng.choice(brands), number)


def write(folder: Path, count: int, seed: int, hand_made: bool = True) -> list[Path]:
    """Write the three files of a catalogue of `count` products, the hand-made sixty first if wanted; returns them.

    Products are streamed; the small files are gathered.
    """
    names = ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")
    products, ins, humans = (folder / name for name in names)
    rows, ins_entries, human_entries = _hand_made() if hand_made else ([], {}, {})
    usable = len({row["asin"] for row in rows if row["asin"] != "nan" and len(row["asin"]) <= 10})
    with products.open("w", encoding="utf-8") as file:
        file.write("[")
        for place, row in enumerate(rows):
            file.write((",\n" if place else "\n") + json.dumps(row, ensure_ascii=False))
        for row, entry, instructions in entries(max(0, count - usable), seed):
            file.write((",\n" if file.tell() > 1 else "\n") + json.dumps(row, ensure_ascii=False))
            ins_entries[row["asin"]] = entry
            if instructions:
                human_entries[row["asin"]] = instructions
        file.write("\n]\n")
    ins.write_text(json.dumps(ins_entries), encoding="utf-8")
    humans.write_text(json.dumps(human_entries), encoding="utf-8")
    return [products, ins, humans]


def _hand_made() -> tuple[list[Row], Row, Row]:
    rows, ins, humans = (json.loads((MADE / name).read_text(encoding="utf-8")) for name in HAND_MADE)
    return rows, ins, humans


def _entry(rng: random.Random, kind: Row, brand: str, number: int) -> tuple[Row, Row, list[Row]]:
    asin = f"B1{_code(rng, 2)}{_base36(number):0>6}"
    name = rng.choice(kind["types"])
    attributes = rng.sample(kind["attributes"], rng.randint(3, 5))
    options = _options(rng, kind["options"])
    row = {
        "asin": asin,
        "name": _title(rng, brand, name, attributes),
        "full_description": _description(rng, kind, brand, name, attributes),
        "small_description": _bullets(rng, brand, name, attributes),
        "pricing": _pricing(rng, kind["low"], kind["high"]),
        "images": [f"https://img.invalid/{asin}.jpg"],
        "customization_options": {key: [{"value": value} for value in values] for key, values in options.items()},
        "category": kind["category"],
        "query": kind["query"],
        "product_category": kind["product_category"],
    }
    wanted = rng.sample(attributes, 2)
    ins = {
        "attributes": attributes,
        "instruction": f"Find me {', '.join(wanted)} {kind['query']}",
        "instruction_attributes": wanted,
    }
    return row, ins, [_request(rng, asin, name, attributes, options)] if rng.random() < _HUMAN else []


def _title(rng: random.Random, brand: str, name: str, attributes: list[str]) -> str:
    shown = [attribute.title() for attribute in attributes[:3]]
    tail = f" - {rng.choice(('New', 'Upgraded', 'Classic', 'Premium'))} {_code(rng, 2)}-{rng.randint(10, 999)}"
    return f"{brand} {shown[0]} {name.title()}, {', '.join(shown[1:])}{tail if rng.random() < 0.4 else ''}"


def _description(rng: random.Random, kind: Row, brand: str, name: str, attributes: list[str]) -> str:
    if rng.random() < 0.1:
        return ""
    vocabulary = _vocabulary()
    opening = f"The {brand} {name} is {' and '.join(attributes[:2])}."
    phrase = rng.choice(vocabulary["phrases"]).format(use=rng.choice(kind["uses"]), type=name)
    return f"{opening} {phrase}{' ' + _care(rng, brand) if rng.random() < 0.6 else ''}"


def _bullets(rng: random.Random, brand: str, name: str, attributes: list[str]) -> list[str]:
    bullets = [f"{attribute.upper()}: this {name} is {attribute}" for attribute in attributes[1:]]
    rng.shuffle(bullets)
    return [*bullets, _care(rng, brand)]


def _care(rng: random.Random, brand: str) -> str:
    model = f"{_code(rng, 3)}{rng.randint(100, 9999)}"
    return str(rng.choice(_vocabulary()["care"]).format(brand=brand, model=model))


def _options(rng: random.Random, pools: dict[str, list[str]]) -> dict[str, list[str]]:
    """None for a sixth of products; else some values of each option, in the pool's order."""
    if rng.random() < 1 / 6:
        return {}
    return {name: _some(rng, values) for name, values in pools.items() if rng.random() < 0.85}


def _some(rng: random.Random, values: list[str]) -> list[str]:
    kept = set(rng.sample(values, rng.randint(2, min(6, len(values)))))
    return [value for value in values if value in kept]


def _pricing(rng: random.Random, low: float, high: float) -> str:
    if rng.random() < _NO_PRICE:
        return ""
    price = round(low * (high / low) ** rng.random()) - 0.01
    if rng.random() < _RANGE:
        return f"${price:,.2f} - ${price * rng.uniform(1.1, 1.9):,.2f}"
    return f"${price:,.2f}"


def _request(rng: random.Random, asin: str, name: str, attributes: list[str], options: dict[str, list[str]]) -> Row:
    """A human-like instruction: one to three attributes, and some of the options."""
    wanted = rng.sample(attributes, rng.randint(1, 3))
    chosen = {key: rng.choice(values) for key, values in options.items() if rng.random() < 0.7}
    text = rng.choice(_vocabulary()["requests"]).format(head=name, rest=" and ".join(wanted))
    if chosen:
        text += ", " + " and ".join(f"{key.removesuffix(' name')} {value}" for key, value in chosen.items())
    return {
        "asin": asin,
        "instruction": text + ("." if rng.random() < 0.5 else ""),
        "attributes": attributes,
        "options": [f"{key}: {value}" for key, value in chosen.items()],
        "instruction_attributes": wanted,
        "instruction_options": list(chosen.values()),
    }


def _brand(rng: random.Random) -> str:
    return "".join(rng.sample(_vocabulary()["syllables"], rng.randint(2, 3))).title()


def _code(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(string.ascii_uppercase, k=length))


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = (string.digits + string.ascii_uppercase)[rest] + digits
    return digits
