"""Search-QA scores of recorded episodes, pooled over questions: no mean of batch means, so that neither batch size nor
order matters.

The published search numbers average the batches of a validation run. 51,713 questions in batches of 512 leave one
question in the last batch, and half of the Bamboogle column hangs on it; docs/search_qa.md shows the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import sqrt
from typing import Any

from benchmarks.search_qa.questions import DATA_SETS

Interval = Callable[[int, int], tuple[float, float]]  # (successes, count) -> (low, high)
SHARES = ("answered", "gold_in_information", "out_of_turns", "f1", "substring_em")
COUNTS = ("searches", "short_results", "cut_texts")
_FACTS = ("profile", "retrieval")


@dataclass
class Tally:
    """Sums over episodes. Adding rows in any order and in any portions gives the same."""

    right: dict[str, int] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)
    sums: dict[str, Fraction] = field(default_factory=dict)
    steps: int = 0
    invalid: int = 0
    facts: dict[str, set[str]] = field(default_factory=dict)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> Tally:
        """Add recorded episodes: `kind` (data set), `success` (exact match), `steps`, and the measures."""
        for row in rows:
            kind = row["kind"]
            self.count[kind] = self.count.get(kind, 0) + 1
            self.right[kind] = self.right.get(kind, 0) + bool(row["success"])
            self.steps += row.get("steps", 0)
            self.invalid += row.get("format_invalid", 0) + row.get("inadmissible", 0)
            for name in (*SHARES, *COUNTS):
                if row.get(name):
                    self.sums[name] = self.sums.get(name, Fraction(0)) + Fraction(row[name])
            for name in _FACTS:
                self.facts.setdefault(name, set()).add(str(row.get(name, "")))
        return self

    @property
    def questions(self) -> int:
        """Episodes in all."""
        return sum(self.count.values())

    def em(self, kind: str) -> Fraction | None:
        """Exact match of a data set as an exact fraction; None without an episode of it."""
        return Fraction(self.right[kind], self.count[kind]) if self.count.get(kind) else None


def report(tally: Tally, interval: Interval, missing: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Exact match by data set with n and interval, the means, and how the agent behaved; strict JSON, shares 0..1.

    A set without episodes has value None and a reason. A mean over sets is None, with the reason, when one of them is
    missing; the question-weighted figure is over the questions that there are. `interval` is Wilson's; of a mean over
    sets it is put together from the sets' own (the square-and-add rule, Zou and Donner 2008).
    """
    sets = {entry["name"]: entry for entry in _sets(tally, interval, missing or {})}
    published = all(kind in {known.name for known in DATA_SETS} for kind in tally.count)
    single = [known.name for known in DATA_SETS if not known.multi_hop] if published else []
    multi = [known.name for known in DATA_SETS if known.multi_hop] if published else []
    right = sum(tally.right.values())
    low, high = interval(right, tally.questions)
    weighted = {"em": right / tally.questions if tally.questions else None, "n": tally.questions}
    means = {
        **({"single_hop": _mean(sets, single), "multi_hop": _mean(sets, multi)} if published else {}),
        "macro": _mean(sets, list(sets)),
        "question_weighted": {**weighted, "low": low, "high": high},
    }
    return {"datasets": list(sets.values()), "means": means, "behavior": behavior(tally)}


def _sets(tally: Tally, interval: Interval, missing: Mapping[str, str]) -> list[dict[str, Any]]:
    known = {one.name: one for one in DATA_SETS}
    published = all(kind in known for kind in tally.count)
    entries = []
    for name in known if published else sorted(tally.count):
        n = tally.count.get(name, 0)
        mark = ("†" if known[name].in_domain else "*") if published else ""
        entry: dict[str, Any] = {"name": name, "title": (known[name].title if published else name) + mark, "n": n}
        if n:
            low, high = interval(tally.right[name], n)
            entry |= {"em": tally.right[name] / n, "right": tally.right[name], "low": low, "high": high}
        else:
            entry |= {"em": None, "reason": missing.get(name, "no question of it in this list")}
        entries.append(entry)
    return entries


def _mean(sets: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    chosen = [sets[name] for name in names]
    absent = [entry["name"] for entry in chosen if entry["em"] is None]
    n = sum(entry["n"] for entry in chosen)
    if absent or not chosen:
        return {"em": None, "n": n, "reason": f"without {', '.join(absent)}" if absent else "no data sets"}
    mean = sum(entry["em"] for entry in chosen) / len(chosen)
    below = sqrt(sum((entry["em"] - entry["low"]) ** 2 for entry in chosen)) / len(chosen)
    above = sqrt(sum((entry["high"] - entry["em"]) ** 2 for entry in chosen)) / len(chosen)
    return {"em": mean, "n": n, "low": max(0.0, mean - below), "high": min(1.0, mean + above)}


def behavior(tally: Tally) -> dict[str, float | None]:
    """Searches a question, shares of questions (answered, out of turns, gold in the information found), the share of
    valid actions, F1 and substring match, and texts cut a question."""
    n = tally.questions
    names = {"cut_texts": "cut_texts_per_question", "searches": "searches_per_question",
             "short_results": "short_results_per_question", "answered": "answer_rate",
             "gold_in_information": "gold_in_information_rate", "out_of_turns": "out_of_turns_rate"}  # fmt: skip
    shown = {names.get(name, name): float(tally.sums.get(name, 0) / n) if n else None for name in (*COUNTS, *SHARES)}
    return {**shown, "turns": tally.steps / n if n else None,
            "valid_action_rate": 1 - tally.invalid / tally.steps if tally.steps else None}  # fmt: skip


def markdown(reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Reports by name of the row, as two Markdown tables in percent, and the reasons of the dashes."""
    first = next(iter(reports.values()))
    columns = [(entry["title"], _entry_of("datasets", i)) for i, entry in enumerate(first["datasets"])]
    columns += [(name.replace("_", " "), _mean_of(name)) for name in first["means"]]
    lines = ["EM, percent; 95 % interval; n", "", _line(["", *(title for title, _ in columns)])]
    lines.append(_line(["---", *("---:" for _ in columns)]))
    lines += [_line([name, *(_percent(pick(one)) for _, pick in columns)]) for name, one in reports.items()]
    lines += ["", _line(["", *(name.replace("_", " ") for name in first["behavior"])])]
    lines.append(_line(["---", *("---:" for _ in first["behavior"])]))
    lines += [_line([name, *map(_plain, one["behavior"].values())]) for name, one in reports.items()]
    reasons = dict.fromkeys(reason for one in reports.values() for reason in _reasons(one))
    return "\n".join([*lines, *(f"\n{reason}" for reason in reasons)]) + "\n"


def _entry_of(part: str, place: int) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    return lambda one: one[part][place]


def _mean_of(name: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    return lambda one: one["means"][name]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(entry: Mapping[str, Any]) -> str:
    if entry["em"] is None:
        return "–"
    return f"{100 * entry['em']:.1f} [{100 * entry['low']:.1f}, {100 * entry['high']:.1f}] n={entry['n']}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _reasons(one: Mapping[str, Any]) -> list[str]:
    sets = [f"– {entry['title']}: {entry['reason']}" for entry in one["datasets"] if entry["em"] is None]
    means = [
        f"– {name.replace('_', ' ')}: {entry['reason']}" for name, entry in one["means"].items() if entry["em"] is None
    ]
    searched = one["behavior"]["searches_per_question"]
    silent = ["No search was carried out in any episode: are replies parsed by the right profile?"]
    return sets + means + (silent if searched == 0 else [])
