"""Stands in for `sweeps.run`: runs without a model, and jobs that end in every way. Imported by the pool's children."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from sweeps.store import Attempt, RunFolder

# --- plain jobs


def write(path: Path, text: str) -> None:
    """Leave a file, say so on both streams."""
    print(f"writing {path.name}")
    print("and a warning", file=sys.stderr)
    path.write_text(text)


def environment(path: Path) -> None:
    """Record what the process sees."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    record = {"pid": os.getpid(), "group": os.getpgid(0), "preloaded": "preloaded_module" in sys.modules}
    path.write_text(json.dumps({**record, **{name: os.environ.get(name) for name in names}}))


def visible(path: Path) -> None:
    """Record which GPUs the process may use, and when."""
    began = time.monotonic()
    time.sleep(0.2)
    gpus = [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    path.write_text(json.dumps({"gpus": gpus, "began": began, "ended": time.monotonic()}))


def crash() -> None:
    """Fail with an exception."""
    raise ValueError("the sky\nfell")


def die() -> None:
    """Fail without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_interrupt(folder: Path) -> None:
    """Count the interrupts that arrive; stop after the first."""
    (folder / f"waiting-{os.getpid()}").touch()
    try:
        _sleep()
    except KeyboardInterrupt:
        with (folder / "interrupts").open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        raise


def ignore_interrupt(folder: Path) -> None:
    """Outlast any interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    (folder / f"waiting-{os.getpid()}").touch()
    _sleep()


def _sleep() -> None:
    for _ in range(600):
        time.sleep(0.1)


# --- runs


def prepare(config: dict[str, Any], root: Path) -> None:
    """Count how often the warm start is asked for."""
    if _wish(root, "prepare") == "crash":
        raise RuntimeError("no warm start today")
    with (root / "prepared").open("a") as stream:
        stream.write(f"{config['model']['name']}\n")


def run_cell(folder: Path) -> None:
    """Go through a run's updates, as wished by `wishes.json` in the comparison's folder."""
    run = RunFolder.open(folder)
    config = run.config()
    root = folder.parent.parent
    label = f"{config['algorithm']['name']}-{config['seed']}"
    print(f"cell {label}")
    with run.start_attempt() as attempt:
        _train(run, attempt, config, _wish(root, label), root)


def _train(run: RunFolder, attempt: Attempt, config: dict[str, Any], wish: str | None, root: Path) -> None:
    updates = 0 if config["algorithm"]["objective"] is None else config["protocol"]["updates"]
    for update in range(len(run.metrics()), updates):
        if wish == "crash" and update == 1:
            raise ArithmeticError("loss is not finite")
        if wish == "die" and update == 1:
            die()
        if wish == "hang" and update == 1:
            wait_for_interrupt(root)
        attempt.log({"update": update, "success": 0.5 + 0.1 * update, "episodes": 4, "wall": 0.01, "time": 1.0})
    _evaluate(run, config)
    run.write_result({"updates": updates})


def _evaluate(run: RunFolder, config: dict[str, Any]) -> None:
    for name, chosen in config["protocol"]["evaluation"]["lists"].items():
        header = {
            "list": name,
            "when": "after",
            "list_hash": "0123456789abcdef",
            "count": chosen["count"],
            "repeats": chosen["repeats"],
            "temperature": 1.0,
            "decoding": config["model"]["decoding"],
            "label": "fake-v1",
            "horizon": config["protocol"]["horizon"],
        }
        rows = [_episode(task, repeat) for task in range(chosen["count"]) for repeat in range(chosen["repeats"])]
        run.write_evaluation(f"{name}/after", header, rows)


def _episode(task: int, repeat: int) -> dict[str, Any]:
    won = (task + repeat) % 2 == 0
    common = {"kind": ("pick", "look")[task % 2], "repeat": repeat, "score": 10.0 * won, "steps": 3}
    return {"task": f"t{task}", "success": won, "format_invalid": 0, "inadmissible": 0, **common}


def _wish(root: Path, label: str) -> str | None:
    path = root / "wishes.json"
    return json.loads(path.read_text()).get(label) if path.exists() else None
