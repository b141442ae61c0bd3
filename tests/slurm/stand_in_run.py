"""Stands in for `sweeps/run.py` in a copy of the code: runs without a model that end in every way.

`OUT/wishes.json` says how, by "algorithm-seed": fail (exception), die (kill -9 of its own process), lose (kill -9 of
the job's program too, so that nothing is left to say why), hang (until it is asked to stop). Everything else is done at
once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from sweeps import stop
from sweeps.store import Attempt, RunFolder, adopt_output

MARK = "as submitted"


def prepare(config: dict, out: Path) -> None:
    """No warm start."""


def run_cell(folder: Path) -> None:
    """One run, from its newest checkpoint."""
    run = RunFolder.open(folder)
    config = run.config()
    path = folder.parent.parent / "wishes.json"
    wishes = json.loads(path.read_text()) if path.exists() else {}
    wish = wishes.get(f"{config['algorithm']['name']}-{config['seed']}")
    with run.start_attempt() as attempt:
        try:
            _train(run, attempt, wish, config["protocol"]["updates"])
        except Exception as error:
            run.write_error(error, None)
            raise
    names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SLURM_JOB_PARTITION", "RANK", "WORLD_SIZE")
    seen = {name: os.environ.get(name) for name in names}
    run.write_result(
        {"mark": MARK, "code": str(Path(__file__).parent), "seen": seen, "lr": config["protocol"]["learning_rate"]}
    )


def _train(run: RunFolder, attempt: Attempt, wish: str | None, updates: int) -> None:
    print(f"{wish or 'run'} in attempt {attempt.number}", flush=True)
    saved = run.checkpoints / "update"
    begun = int(saved.read_text()) if saved.exists() else 0
    for update in range(begun + 1, updates + 1):
        attempt.log({"update": update, "begun": begun, "time": time.time()})
        run.checkpoints.mkdir(exist_ok=True)
        saved.write_text(str(update))
        _obey(wish)
    while wish == "hang" and run.attempts()[-1].name == "0001":
        if stop.requested():
            raise stop.StopRequested("stopped")
        time.sleep(0.05)


def _obey(wish: str | None) -> None:
    if wish == "fail":
        raise ArithmeticError("loss is not finite")
    if wish == "lose":
        os.kill(os.getppid(), signal.SIGKILL)
    if wish in ("die", "lose"):
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """As `sweeps.run` does it."""
    stop.listen()
    if "CREDITBENCH_OUTPUT" in os.environ:
        adopt_output(Path(os.environ["CREDITBENCH_OUTPUT"]))
    try:
        run_cell(Path(sys.argv[1]))
    except stop.StopRequested:
        return stop.REQUEUE
    return 0


if __name__ == "__main__":
    sys.exit(main())
