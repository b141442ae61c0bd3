"""Products: from a raw row of the official files to what pages, search and reward need."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

LONGEST_ASIN = 10
DEFAULT_PRICE = 100.0
DUMMY_ATTRIBUTE = "DUMMY_ATTR"
_NEEDED = ("asin", "name", "query", "category", "product_category")


class RowError(ValueError):
    """A row that is not a WebShop product; the message says what it lacks."""


@dataclass(frozen=True)
class Product:
    """A product after the original's cleaning. `prices` holds one value, or the two ends of a range that are shown
    but not ordered; `nouns` are the nouns of the title, repeats included, as the store's tagger found them."""

    asin: str
    title: str
    price_tag: str
    prices: tuple[float, ...]
    options: dict[str, list[str]]
    attributes: list[str]
    bullets: list[str]
    description: str
    query: str
    category: str
    product_category: str
    nouns: list[str]

    @cached_property
    def searchable(self) -> tuple[str, str, str]:
        """Lower-case title, joined bullets and description: where the reward looks for attributes."""
        return self.title.lower(), " ".join(self.bullets).lower(), self.description.lower()

    def indexed_text(self) -> str:
        """What search sees: title, description, first bullet and options; neither query nor category."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        first = self.bullets[0] if self.bullets else ""
        return " ".join((self.title, self.description, first, options)).lower()

    def pack(self) -> bytes:
        """The product as compressed JSON."""
        return zlib.compress(json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":")).encode(), 6)

    @classmethod
    def unpack(cls, data: bytes) -> Product:
        """The inverse of `pack`."""
        fields = json.loads(zlib.decompress(data))
        return cls(**{**fields, "prices": tuple(fields["prices"])})


def skipped(row: Any) -> bool:
    """Whether the original leaves a row out, whatever else it holds: no ASIN, or one that is too long."""
    asin = row.get("asin") if isinstance(row, Mapping) else None
    return isinstance(asin, str) and (asin == "nan" or len(asin) > LONGEST_ASIN)


def check(row: Any) -> Mapping[str, Any]:
    """RowError unless the row is a product."""
    if not isinstance(row, Mapping):
        raise RowError(f"a product is a JSON object, this is {type(row).__name__}")
    for key in _NEEDED:
        if not isinstance(row.get(key), str):
            raise RowError(f"a product needs a text {key!r}")
    return row


def clean(row: Mapping[str, Any], attributes: list[str] | None, nouns: list[str]) -> Product:
    """The product of a raw row; `attributes` come from the ins file."""
    prices, tag = read_price(row.get("pricing"))
    bullets = row.get("small_description")
    return Product(
        asin=row["asin"],
        title=row["name"],
        price_tag=tag,
        prices=prices,
        options=_options(row.get("customization_options")),
        attributes=[DUMMY_ATTRIBUTE] if attributes is None else list(attributes),
        bullets=_texts(bullets) if isinstance(bullets, list) else [_text(bullets)],
        description=_text(row.get("full_description")),
        query=row["query"].lower().strip(),
        category=row["category"],
        product_category=row["product_category"],
        nouns=nouns,
    )


def read_price(pricing: Any) -> tuple[tuple[float, ...], str]:
    """(prices, tag) of a price text such as `$7.99 - $15.49`; thousands separators vanish.

    Without a dollar amount it is 100: the original does so for an empty text and cannot load anything else.
    """
    amounts = (re.sub(r"[^\d.]", "", part) for part in str(pricing or "").split("$")[1:])
    found = [float(amount) for amount in amounts if re.fullmatch(r"\d+\.?\d*|\.\d+", amount, re.ASCII)]
    if not found:
        return (DEFAULT_PRICE,), f"${DEFAULT_PRICE}"
    if len(found) == 1:
        return (found[0],), f"${found[0]}"
    return (found[0], found[1]), f"${found[0]} to ${found[1]}"


def _options(raw: Any) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for name, contents in (raw or {}).items():
        if contents is not None:
            values = (_text(content["value"]) for content in contents)
            options[name.lower()] = [value.strip().replace("/", " | ").lower() for value in values]
    return options


def _texts(values: list[Any]) -> list[str]:
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    return "" if value is None else str(value)
