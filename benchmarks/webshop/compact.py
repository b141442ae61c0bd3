"""The prompt of one step in few words of a closed vocabulary, for the built-in tiny policy.

    [page] results 1 of 3 [items] 1 5 top ok ; 2 4 over ; 3 5 top ok seen [prev] search 2 [act]
    [page] item [hits] 6 [missing] 1 ok [options] 1 no g1 ; 2 yes g1 on ; 3 yes g2 [prev] open 1 ; choose 2 [act]

Products and options are numbered as in the commands `open N` and `choose N`; what follows a number is how well it fits
the task (see `sight`). The vocabulary is the same for every catalogue.
"""

from __future__ import annotations

from benchmarks.base import StepView
from benchmarks.webshop import menu

_FIELDS = ("[page]", "[items]", "[hits]", "[missing]", "[options]", "[left]", "[prev]", "[act]")
_WORDS = (
    "start", "results", "item", "done", "of", "top", "ok", "over", "range", "seen", "yes", "some", "no", "on", ";",
    "search", "open", "choose",
)  # fmt: skip
_PAST = 2  # commands shown in [prev]


def words(text: str) -> list[str]:
    """Words of a compact prompt or a short command; `" ".join` puts them back together."""
    return text.split()


def lexicon() -> tuple[str, ...]:
    """Every word of compact prompts and short commands."""
    groups = [f"g{number}" for number in range(1, 10)]
    numbers = [str(number) for number in range(menu.MOST_OPTIONS + 1)]
    return tuple(dict.fromkeys((*_FIELDS, *_WORDS, *menu.BUTTONS.values(), *groups, *numbers)))


def compact(view: StepView) -> str:
    """The prompt of one step, words separated by single spaces. ValueError where commands are not short."""
    facts = view.observation.facts
    if "page" not in facts:
        raise ValueError("the tiny policy needs benchmark.options.commands=short in webshop")
    parts = ["[page]", facts["page"]]
    if "items" in facts:
        parts += [facts["number"], "of", facts["pages"], "[items]", *_numbered(facts["items"])]
    if "hits" in facts:
        parts += ["[hits]", facts["hits"], "[missing]", facts["missing"], facts["price"]]
        parts += ["[options]", *_numbered(facts["options"])]
    left = max(0, min(9, view.horizon - view.step))
    parts += ["[left]", str(left), "[prev]", " ; ".join(action for _, action in view.history[-_PAST:]), "[act]"]
    return " ".join(" ".join(parts).split())


def _numbered(joined: str) -> list[str]:
    """ "a,b" as "1 a ; 2 b"."""
    entries = [entry for entry in joined.split(",") if entry]
    return [" ; ".join(f"{number} {entry}" for number, entry in enumerate(entries, start=1))]
