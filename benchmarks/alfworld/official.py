"""ALFWorld's own games: the folder `json_2.1.1` inside $ALFWORLD_DATA, as `alfworld-download` unpacks it.

Which games count follows ALFWorld's environment: folders named `movable` or `Sliced` are left out, so are games of
other task types, and games without a `solvable` mark or marked false. The order is the sorted path, on every machine.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.alfworld import rooms, upstream
from benchmarks.alfworld.game_data import GameData, split_grammar

SIZES = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
FOLDER = "json_2.1.1"
GAME_FILE = "game.tw-pddl"
_TRAJECTORY = "traj_data.json"
_SKIPPED = ("movable", "Sliced")
_PUT = re.compile(r'action\s+PutObject\s*\{[^}]*template\s*::\s*"((?:move|put) [^"]*)"')
_WAY_OUT = (
    "run `alfworld-download` with ALFWORLD_DATA set to the folder that should hold the games, "
    "or play generated games (data=synth)"
)
log = logging.getLogger(__name__)


def data_folder() -> Path:
    """`json_2.1.1` of $ALFWORLD_DATA. FileNotFoundError when the variable or the folder is missing."""
    root = os.environ.get("ALFWORLD_DATA", "")
    if not root:
        raise FileNotFoundError(f"data=official needs the variable ALFWORLD_DATA, which is not set; {_WAY_OUT}")
    folder = Path(root).expanduser() / FOLDER
    if not folder.is_dir():
        raise FileNotFoundError(f"ALFWORLD_DATA={root} holds no folder {FOLDER}; {_WAY_OUT}")
    return folder


def game_paths(split: str) -> tuple[str, ...]:
    """Paths of a split's games below the data folder, sorted; scanned once per folder and process.

    FileNotFoundError when the split is missing or holds no game. Warns when the number is not the published one.
    """
    return _scan(data_folder(), split)


@functools.cache
def _scan(folder: Path, split: str) -> tuple[str, ...]:
    base = folder / split
    log.info("scanning the ALFWorld games of %s", base)
    trials = sorted(path.parent for path in base.rglob(_TRAJECTORY))
    paths = tuple(str(trial.relative_to(folder).as_posix()) for trial in trials if _counts(trial, folder))
    if not paths:
        raise FileNotFoundError(
            f"ALFWORLD_DATA={folder.parent} is not completely unpacked: {FOLDER}/{split} has {len(trials)} "
            f"{_TRAJECTORY} and no usable {GAME_FILE}; {_WAY_OUT}"
        )
    if len(paths) != SIZES[split]:
        warnings.warn(
            f"{FOLDER}/{split} in ALFWORLD_DATA={folder.parent} has {len(paths)} games where the published split has "
            f"{SIZES[split]}; results are not comparable with published ones",
            stacklevel=2,
        )
    return paths


def _counts(trial: Path, folder: Path) -> bool:
    """Whether ALFWorld itself would play this trial."""
    if any(word in str(trial.relative_to(folder)) for word in _SKIPPED):
        return False
    if not (trial / GAME_FILE).is_file() or _read_json(trial / _TRAJECTORY)["task_type"] not in rooms.KINDS:
        return False
    return bool(_read_json(trial / GAME_FILE).get("solvable", False))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} in ALFWORLD_DATA is cut off or damaged ({error}); {_WAY_OUT}") from error
    return content


def read_game(path: str) -> GameData:
    """The game in a folder below `json_2.1.1`; its domain, grammar and sentence are the file's own."""
    trial = data_folder() / path
    game = _read_json(trial / GAME_FILE)
    grammar, sentence = split_grammar(game["grammar"])
    return GameData(
        id=path,
        task_type=_read_json(trial / _TRAJECTORY)["task_type"],
        domain=game["pddl_domain"],
        problem=game["pddl_problem"],
        grammar=grammar,
        sentence=sentence,
    )


def put_command(grammar: str) -> str:
    """How a grammar words putting an object down: "move {o} to {r}" since ALFWorld 0.4, "put {o} in/on {r}" before.

    Prompts and demonstrations made for one fail on the other without a sound. "" where it has no such action.
    """
    match = _PUT.search(grammar)
    return match[1] if match else ""


def write_games(root: Path, games: Mapping[str, Iterable[GameData]]) -> None:
    """Write games in the official layout, so that ALFWorld's own environment plays them with ALFWORLD_DATA=`root`."""
    domain, grammar = upstream.domain_and_grammar()
    _write(root / "logic" / "alfred.pddl", domain)
    _write(root / "logic" / "alfred.twl2", grammar)
    for split, entries in games.items():
        for game in entries:
            trial = _trial_folder(root / FOLDER / split, game)
            task = {"task_desc": game.sentence, "high_descs": []}
            trajectory = {"task_type": game.task_type, "turk_annotations": {"anns": [task]}}
            _write(trial / _TRAJECTORY, json.dumps(trajectory, allow_nan=False))
            _write(trial / "initial_state.pddl", game.problem)
            _write(trial / GAME_FILE, json.dumps(game.engine_data(), allow_nan=False))


def _trial_folder(split: Path, game: GameData) -> Path:
    """`<task>-<object>-<None>-<receptacle>-<scene>/trial_<number>`, the last two parts of a generated game's id."""
    _, number, name = game.id.split("/")
    task, target, receptacle, scene = name.split("-")
    return split / f"{task}-{target}-None-{receptacle}-{scene}" / f"trial_S{number}"


def _write(path: Path, text: str) -> None:
    """Write a file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, path)
