"""All figures by name: `creditbench figure NAME` and the report draw from here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.cache import Wanted
from analysis.comparable import ComparisonError, check_seeds, check_settings, comparable_sets, method_names
from analysis.figure_scores import performance_profiles, probability_of_improvement, sensitivity, subtasks
from analysis.figure_states import (
    case_views,
    draw_case,
    group_size_distribution,
    group_size_dynamics,
    propagation_distribution,
    propagation_dynamics,
)
from analysis.figure_training import STAGES, average_turns, stage_times
from analysis.figures import FORMATS, figure_style, learning_figure, save_figure
from analysis.load import Runs, select
from analysis.scores import STAGES as SUCCESSIVE
from analysis.spec import SpecError, slug

_Make = Callable[[Runs, pd.Series], tuple[Figure, list[str]]]
_MakeOnList = Callable[[Runs, pd.Series, str | None], tuple[Figure, list[str]]]

PLAIN: Mapping[str, tuple[_Make, str]] = {
    "learning_curves": (learning_figure, "success against updates, episodes and wall time"),
    "average_turns": (average_turns, "steps an episode against updates (GRAFT Figure 3)"),
    "stage_times": (stage_times, "seconds an update by stage (GRAFT Figure 4, GraphHCA Figure 4)"),
    "group_size_dynamics": (group_size_dynamics, "steps a state against updates (GRAFT Figure 5)"),
    "group_size_distribution": (group_size_distribution, "shares of node group sizes (GRAFT Figure 6)"),
    "propagation_dynamics": (propagation_dynamics, "information propagation degree against updates (GRAFT Figure 7)"),
    "propagation_distribution": (
        propagation_distribution,
        "shares of information propagation degrees (GRAFT Figure 8)",
    ),
}
ON_LIST: Mapping[str, tuple[_MakeOnList, str]] = {
    "subtasks": (subtasks, "success by kind of task"),
    "sensitivity": (sensitivity, "success against each option that the runs vary"),
    "performance_profiles": (performance_profiles, "mean, IQM and share of scores above each level"),
    "probability_of_improvement": (probability_of_improvement, "pairs of methods: which one scores higher"),
}
CASES = "case_graphs"
_OUTCOME = frozenset({"kind", "success"})
_STAGES = frozenset(f"timing/{stage}" for stage in STAGES)
_CURVE = frozenset({"episodes"} | {f"timing/{stage}" for stage in SUCCESSIVE})
_METRICS: Mapping[str, frozenset[str]] = {  # what each figure draws of the log of updates
    "learning_curves": _CURVE | {"success"},
    "average_turns": _CURVE | {"turns"},
    "stage_times": _STAGES,
    "group_size_dynamics": _CURVE | {"advantage/rows", "advantage/nodes"},
}


@dataclass(frozen=True)
class Drawn:
    """What was written, and one line for each run that should be in it and isn't."""

    files: list[Path]
    left_out: list[str]


def figure_names() -> dict[str, str]:
    """Name -> what it shows."""
    words = {name: entry[1] for name, entry in [*PLAIN.items(), *ON_LIST.items()]}
    return {**words, CASES: "trajectory graphs of one task group (GRAFT Figures 9 and 10)"}


def wanted(names: Iterable[str]) -> Wanted:
    """The columns of metrics and episodes that these figures need."""
    needs = [Wanted(_METRICS.get(name, frozenset()), _OUTCOME if name in ON_LIST else frozenset()) for name in names]
    return reduce(or_, needs, Wanted(frozenset(), frozenset()))


def draw_figure(
    name: str,
    runs: Runs,
    folder: Path,
    formats: Sequence[str] = tuple(FORMATS),
    methods: pd.Series | None = None,
    evaluation_list: str | None = None,
) -> Drawn:
    """Write figure `name` to folder/NAME.*: one for each set of runs of one benchmark, model and protocol, their names
    in the files' where there are several.

    Args:
        methods: name of each run's method, aligned with `runs.runs`; by default the algorithm, and the options that
            differ.

    Raises:
        SpecError: an unknown name or format.
        ComparisonError: no runs, two runs of one method and seed, an unknown evaluation list, runs of one set that
            were evaluated in other ways or looked things up in other places.
    """
    _check(name, formats)
    if not len(runs.runs):
        raise ComparisonError("no runs to draw; name their folder with --out, or loosen --where")
    sets = [select(runs, ids) for ids in comparable_sets(runs)]
    named = None if methods is None else dict(zip(runs.runs["run"], methods, strict=True))
    drawn = Drawn([], [])
    stems = [name] if len(sets) == 1 else _stems(name, sets)
    for part, stem in zip(sets, stems, strict=True):
        own = method_names(part) if named is None else part.runs["run"].map(named)
        check_seeds(part, own)
        check_settings(part)
        files, left_out = _draw(name, part, own, folder / stem, tuple(formats), evaluation_list)
        drawn.files.extend(files)
        drawn.left_out.extend(left_out)
    return drawn


def _check(name: str, formats: Sequence[str]) -> None:
    known = figure_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SpecError(f"no figure {name!r}{hint} (known: {', '.join(known)})")
    for one in formats:
        if one not in FORMATS:
            raise SpecError(f"no format {one!r} (known: {', '.join(FORMATS)})")


def _stems(name: str, sets: Sequence[Runs]) -> list[str]:
    """File names that tell sets apart."""
    stems: list[str] = []
    for part in sets:
        first = part.runs.iloc[0]
        stem = "-".join([name, *(slug(str(first[key])) for key in ("benchmark", "model", "protocol"))])
        same = sum(one == stem or one.startswith(f"{stem}-") for one in stems)
        stems.append(f"{stem}-{same + 1}" if same else stem)
    return stems


def _draw(
    name: str, runs: Runs, methods: pd.Series, stem: Path, formats: tuple[str, ...], evaluation_list: str | None
) -> tuple[list[Path], list[str]]:
    if name == CASES:
        views, left_out = case_views(runs, methods)
        paths = [draw_case(view, stem.with_name(f"{stem.name}-{slug(method)}"), formats) for method, _, view in views]
        return [path for group in paths for path in group], left_out
    with figure_style():
        if name in PLAIN:
            figure, left_out = PLAIN[name][0](runs, methods)
        else:
            figure, left_out = ON_LIST[name][0](runs, methods, evaluation_list)
        return save_figure(figure, stem, formats), left_out
