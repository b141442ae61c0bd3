"""Scripted policies: a buyer that knows the goal, a shopper that reads, one that does nothing; and the ceiling.

The ceiling of a goal is the score of its own product with the best of its own options. It can be below 1: a synthetic
goal whose option hides a color (standard, rosemary) cannot be met, nor one whose option has a button's name.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.base import Observation, StepView, Task
from benchmarks.webshop import pages
from benchmarks.webshop.episode import Episode
from benchmarks.webshop.pages import OPTION
from benchmarks.webshop.products import Product
from benchmarks.webshop.reward import goal_options, matched_options, purchase_reward
from benchmarks.webshop.session import ITEM, RESULTS, SUB, Session, parse_action

HORIZON = 15
IDLE = "click[search]"  # the original ignores it on every page
PATIENCE = 0.5  # of the shopper that the tiny policy imitates

Policy = Callable[[], str]


def noop_action(_: Observation) -> str:
    """Does nothing for ever; scores 0."""
    return IDLE


# --- what can be reached ----------------------------------------------------------------------------------------------


def choosable(product: Product, show_attributes: bool = False) -> dict[str, list[str]]:
    """Values of each option that a click can choose: not those named like a button, nor with a bracket or line break;
    a value of two options belongs to the last one."""
    page = pages.item("", product, show_attributes)
    taken = {label.lower() for kind, label in page.nodes if kind == pages.BUTTON} | {"search"}
    values: dict[str, list[str]] = {}
    for label, click in page.clickables.items():
        reachable = parse_action(f"click[{label}]") == ("click", label) and label == label.lower()
        if click.kind == OPTION and reachable and label not in taken:
            values.setdefault(click.name, []).append(label)
    return values


def best_options(product: Product, goal: Mapping[str, Any], show_attributes: bool = False) -> dict[str, str]:
    """The choice, one value of an option at most, that meets most of the goal's options; fewest clicks among equals."""
    wanted = goal_options(goal)
    groups: list[list[tuple[str, str] | None]] = []
    for name, values in choosable(product, show_attributes).items():
        useful: dict[frozenset[int], tuple[str, str]] = {}
        for value in values:
            met = frozenset(i for i, option in enumerate(wanted) if matched_options([value], [option]))
            if met:
                useful.setdefault(met, (name, value))
        if useful:
            groups.append([None, *useful.values()])
    choices = ([pair for pair in choice if pair] for choice in itertools.islice(itertools.product(*groups), 10_000))
    best = max(choices, key=lambda pairs: (matched_options([value for _, value in pairs], wanted), -len(pairs)))
    return dict(best)


@dataclass(frozen=True)
class Ceiling:
    """What the best purchase of a goal's own product scores, and the options to choose for it."""

    score: float
    options: dict[str, str]


def ceiling(product: Product, goal: Mapping[str, Any], price: float, show_attributes: bool = False) -> Ceiling:
    """The ceiling of one goal; `product` is the goal's own."""
    options = best_options(product, goal, show_attributes)
    return Ceiling(purchase_reward(product, options, price, goal)[0], options)


# --- a buyer that knows the goal --------------------------------------------------------------------------------------


def buyer(session: Session) -> Policy:
    """Finds the goal's own product by its title and buys it with its best options; call it for the next action."""
    position = session.shop.position(session.goal["asin"])
    if position is None:
        raise ValueError(f"the catalogue has no product {session.goal['asin']}")
    product = session.shop.product(position)
    wanted = best_options(product, session.goal)
    searches = iter(_searches(product))

    def act() -> str:
        state = session.state
        if state.page == ITEM and state.position == position:
            missing = [value for name, value in wanted.items() if state.options.get(name) != value]
            return f"click[{missing[0]}]" if missing else "click[buy now]"
        if state.page == SUB and state.position == position:
            return "click[< prev]"
        if state.page == RESULTS and position in state.hits:
            if product.asin.lower() in session.page.clickables:
                return f"click[{product.asin.lower()}]"
            ahead = state.hits.index(position) >= state.number * pages.PAGE
            return "click[next >]" if ahead else "click[< prev]"
        return next(searches, IDLE)

    return act


def _searches(product: Product) -> Iterator[str]:
    """Queries that should find a product: its title, then more of its text."""
    values = " ".join(value for values in product.options.values() for value in values)
    for text in (product.title, f"{product.title} {product.description}", f"{product.title} {values}"):
        yield f"search[{' '.join(text.replace('[', ' ').replace(']', ' ').split()) or 'product'}]"


def play(episode: Episode, policy: Policy, horizon: int = HORIZON) -> tuple[float, int]:
    """(score, steps) of a policy in an episode."""
    for step in range(1, horizon + 1):
        if episode.step(policy()).done:
            return episode.score, step
    return episode.score, horizon


# --- a shopper that only reads ----------------------------------------------------------------------------------------


def shopper(observation: Observation) -> str:
    """The next short command of a shopper that sees what the agent sees: search with the words that tell something,
    open the best product not opened yet, choose the values that the task names, buy."""
    facts = observation.facts
    if facts["page"] == "start":
        return "search 2"
    if facts["page"] == "results":
        return _pick(facts["items"].split(",") if facts["items"] else [], observation)
    if facts["page"] == "item":
        return _choose(facts["options"].split(",") if facts["options"] else [], observation)
    return "prev"


def _pick(items: list[str], observation: Observation) -> str:
    rated = [entry.split() for entry in items]
    fresh = [number for number, words in enumerate(rated, start=1) if "seen" not in words]
    if not fresh:
        return "next" if rated and "next" in observation.admissible else "back"

    def worth(number: int) -> tuple[int, int, int]:
        words = rated[number - 1]
        price = next(rank for rank, word in enumerate(("over", "range", "ok")) if word in words)
        return price, int(words[0]), -number

    return f"open {max(fresh, key=worth)}"


def _choose(options: list[str], observation: Observation) -> str:
    rated = [entry.split() for entry in options]
    chosen = {words[1] for words in rated if "on" in words}
    for number, (fit, group, *_) in enumerate(rated, start=1):
        if fit == "yes" and group not in chosen and f"choose {number}" in observation.admissible:
            return f"choose {number}"
    return "buy"


def hasty(observation: Observation, rng: random.Random) -> str:
    """What a shopper without patience does: any query, any product, any value, or it buys what it sees."""
    page = observation.facts["page"]
    if page == "item":
        values = [command for command in observation.admissible if command.startswith("choose")]
        return rng.choice(["buy", rng.choice(values) if values else "buy"])
    offers = [command for command in observation.admissible if command.startswith(("search", "open"))]
    return rng.choice(offers) if offers else shopper(observation)


def demonstrations(
    start: Callable[[Task], Episode], tasks: Sequence[Task], runs: int, seed: int, patience: float = PATIENCE
) -> Iterator[tuple[StepView, str]]:
    """(view, command) of a shopper in `runs` episodes a task; a pure function of its arguments.

    It reads with probability `patience` at each step and is hasty otherwise, so that what is learned from it leaves
    something to improve. Episodes need short commands.
    """
    for task in tasks:
        for run in range(runs):
            yield from _demonstration(start(task), random.Random(f"{seed}/{task.id}/{run}"), patience)


def _demonstration(episode: Episode, rng: random.Random, patience: float) -> Iterator[tuple[StepView, str]]:
    history: list[tuple[str, str]] = []
    observation, done = episode.observation(), False
    while not done and len(history) < HORIZON:
        command = shopper(observation) if rng.random() < patience else hasty(observation, rng)
        yield StepView(observation, len(history), HORIZON, tuple(history)), command
        history.append((observation.text, command))
        result = episode.step(command)
        observation, done = result.observation, result.done


def translated_demonstrations(
    start: Callable[[Task], Episode], start_short: Callable[[Task], Episode], tasks: Sequence[Task], runs: int
) -> Iterator[tuple[StepView, str]]:
    """(view, official action) of a shopper that always reads; it is deterministic, so `runs` repeat themselves.

    The shopper plays an episode with short commands, and each action is done in an official one, whose views these are.
    """
    for task in tasks:
        for _ in range(runs):
            yield from _translated(start(task), start_short(task))


def _translated(episode: Episode, short: Episode) -> Iterator[tuple[StepView, str]]:
    history: list[tuple[str, str]] = []
    observation, done = episode.observation(), False
    while not done and len(history) < HORIZON:
        command = shopper(short.observation())
        action = short.official(command)
        yield StepView(observation, len(history), HORIZON, tuple(history)), action
        history.append((observation.text, action))
        short.step(command)
        result = episode.step(action)
        observation, done = result.observation, result.done
