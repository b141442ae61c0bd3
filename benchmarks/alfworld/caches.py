"""Caches for textworld's PDDL engine that change its speed and nothing else.

textworld parses the same grammar strings again for every admissible command, deep-copies contexts, and translates a
problem to SAS at each load and reset. `applied()` replaces exactly those functions while it is active and puts the
originals back, so other users of textworld in the process never see it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.alfworld import upstream


@functools.cache
def usable() -> bool:
    """Whether the installed versions are the ones the caches were checked against; warns once if not."""
    found = upstream.versions()
    if found == upstream.SUPPORTED:
        return True
    have = ", ".join(f"{name} {version or 'missing'}" for name, version in found.items())
    want = ", ".join(f"{name} {version}" for name, version in upstream.SUPPORTED.items())
    warnings.warn(f"ALFWorld runs without its caches (slow): they need {want}, found {have}", stacklevel=2)
    return False


def _shallow_context(context: dict[str, Any]) -> dict[str, Any]:
    """A context whose own mappings are copied; what they hold is never changed by the grammar."""
    return {**context, "variables": dict(context["variables"]), "mapping": dict(context["mapping"])}


def _remembered(function: Callable[..., Any], duplicate: Callable[[Any], Any]) -> Callable[..., Any]:
    """`function` of hashable arguments, each result computed once and handed out through `duplicate`."""
    cached = functools.lru_cache(maxsize=4096)(function)
    return lambda *args, **kwargs: duplicate(cached(*args, **kwargs))


@functools.cache
def _replacements() -> tuple[tuple[Any, str, Any], ...]:
    """(owner, attribute, cached version) of each replaced function."""
    import fast_downward
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    mementos = importlib.import_module("mementos.core")
    parse_rule = functools.lru_cache(maxsize=4096)(Rule.parse_conjunctive_query)
    return (
        (textgen, "_parse_and_convert", _remembered(textgen._parse_and_convert, copy.deepcopy)),
        (textgen, "copy_context", _shallow_context),
        (Rule, "parse_conjunctive_query", staticmethod(parse_rule)),
        (fast_downward, "pddl2sas", _plain_translation(fast_downward.pddl2sas)),
        (mementos, "_memento_cache", _propositions),
    )


# textworld keeps every proposition it ever made, for all games, in one table; games here use this one instead
_propositions: dict[Any, Any] = {}


def forget_propositions() -> None:
    """Let go of the propositions of games that were dropped. They are compared by value, so others do not notice."""
    _propositions.clear()


def _plain_translation(translate: Callable[..., Any]) -> Callable[..., Any]:
    """`pddl2sas` that leaves out the second translation of each state, used for planning alone.

    `planning_task` makes it where a plan is wanted.
    """

    def plain(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> tuple[Any, str]:
        return (None, "") if optimize else translate(domain, problem, verbose=verbose)

    return plain


def planning_task(domain: str, problem: str) -> bytes:
    """The translation that the planner searches in (about 0.2 s for a room of stock size)."""
    import fast_downward

    with upstream.untouched():
        _, sas = fast_downward.pddl2sas(domain, problem, optimize=True)
    return bytes(sas.encode())


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """Run engine code with the caches in place."""
    with upstream.untouched():
        originals = [(owner, name, owner.__dict__[name]) for owner, name, _ in _replacements()]
        for owner, name, cached in _replacements():
            setattr(owner, name, cached)
        try:
            yield
        finally:
            for owner, name, original in originals:
                setattr(owner, name, original)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector from looking, again and again, through the million objects of a translation."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
