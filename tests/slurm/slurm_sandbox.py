"""A real Slurm for the tests of one module, and a checkout of its own whose runs need no model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = ("algorithms", "analysis", "benchmarks", "sweeps")
GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")


class Sandbox:
    """A throw-away Slurm on this machine: two nodes of 8 CPUs and 4 stand-in GPUs each."""

    def __init__(self, folder: Path, port: int, **settings: str) -> None:
        self.environment = {"SLURM_SANDBOX": str(folder), "SANDBOX_PORT": str(port), **settings}
        self.conf = folder / "etc" / "slurm.conf"

    def control(self, word: str) -> None:
        done = subprocess.run(
            ["bash", str(HERE / "start_slurm.sh"), word],
            env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def ask(self, *command: str) -> str:
        environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    def queue(self) -> dict[str, str]:
        """Job id -> short state."""
        lines = self.ask("squeue", "-h", "-r", "-o", "%i %t").splitlines()
        return dict(line.split() for line in lines)

    def empty(self) -> None:
        """Cancel everything and wait until nothing is left."""
        self.ask("scancel", "-u", "root")
        wait_until(lambda: not self.queue(), 30)


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    for _ in range(int(seconds / 0.1)):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"it did not happen within {seconds} s")


def sandbox(port: int, **settings: str) -> Iterator[Sandbox]:
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        pytest.skip("needs root and Slurm: bash tests/slurm/start_slurm.sh install")
    # not below pytest's own folder, which only root may enter: the database runs as another user
    made = Sandbox(Path(tempfile.mkdtemp(prefix="creditbench-slurm-")), port, **settings)
    made.control("start")
    try:
        yield made
    finally:
        made.control("clean")


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository of this code, committed, with the stand-in for the runner."""
    root = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PACKAGES],
        capture_output=True, check=False,
    )  # fmt: skip
    names = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, root / name)
    shutil.copy2(HERE / "stand_in_run.py", root / "sweeps" / "run.py")
    (root / ".gitignore").write_text("__pycache__/\n")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "as it is"]):
        subprocess.run([*GIT, *command], cwd=root, check=True, capture_output=True)
    return root


class Store:
    """A store, and `creditbench` on it as a user runs it, from the checkout."""

    def __init__(self, slurm: Sandbox, checkout: Path, out: Path) -> None:
        self.slurm, self.checkout, self.out = slurm, checkout, out
        self.environment = {
            **os.environ, "SLURM_CONF": str(slurm.conf), "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1",
        }  # fmt: skip

    def run(self, command: str, grid: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`creditbench COMMAND GRID --out OUT ...`."""
        return subprocess.run(
            self.command(command, grid, *arguments), env={**self.environment, **environment}, cwd=self.checkout,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def command(self, command: str, grid: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "sweeps.cli", command, grid, "--out", str(self.out), *arguments]

    def submit(self, *arguments: str, grid: str = "smoke", **environment: str) -> subprocess.CompletedProcess[str]:
        done = self.run("submit", grid, *arguments, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def wish(self, **wishes: str) -> None:
        self.out.mkdir(exist_ok=True)
        (self.out / "wishes.json").write_text(json.dumps({key.replace("_", "-"): how for key, how in wishes.items()}))

    def status(self, grid: str = "smoke") -> dict:
        return json.loads(self.run("status", grid, "--json").stdout)

    def states(self, grid: str = "smoke") -> dict[str, str]:
        """ "algorithm-seed" -> state."""
        return {f"{cell['method']}-{cell['seed']}": cell["state"] for cell in self.status(grid)["cells"]}

    def cell(self, name: str, grid: str = "smoke") -> dict:
        method, seed = name.rsplit("-", 1)
        return next(c for c in self.status(grid)["cells"] if (c["method"], c["seed"]) == (method, int(seed)))

    def folder(self, name: str, grid: str = "smoke") -> Path:
        return self.out / "runs" / self.cell(name, grid)["id"]

    def wait(self, condition: Callable[[dict[str, str]], object], seconds: float = 90) -> dict[str, str]:
        """States once the condition holds."""
        for _ in range(int(seconds / 0.5)):
            now = self.states()
            if condition(now):
                return now
            time.sleep(0.3)
        raise AssertionError(f"it did not happen within {seconds} s: {now}\n{self.slurm.queue()}")

    def settled(self) -> dict[str, str]:
        """States once nothing runs or waits."""
        return self.wait(lambda now: not {"queued", "running"} & set(now.values()))


@pytest.fixture
def store(slurm: Sandbox, checkout: Path, tmp_path: Path) -> Iterator[Store]:
    yield Store(slurm, checkout, tmp_path / "out")
    slurm.empty()
