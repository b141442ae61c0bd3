"""More than one process for a run: torchrun for plain data parallelism, accelerate for FSDP and DeepSpeed.

On several nodes `srun` starts one launcher a node. Rank 0 must be on the first node, whose address is asked of Slurm
(its name need not resolve, and the launch node is not always the first): so the rendezvous is static.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweeps.config import CONF
from sweeps.files import StoreError
from sweeps.jobspec import JobSpec

CONFIGS = CONF / "launch"
OUTPUT = "CREDITBENCH_OUTPUT"  # where rank 0's output goes; its attempt takes the file


def command(folder: Path, spec: JobSpec, environment: Mapping[str, str]) -> list[str]:
    """The command that runs the cell in `folder` with all its processes, as seen from the job's first node."""
    program = [str(folder)]
    if spec.world == 1:
        return [sys.executable, "-u", "-m", "sweeps.run", *program]
    if spec.nodes == 1:
        return _launcher(spec, "127.0.0.1", "0", "0", program)
    address, port = _head(environment)
    inner = _launcher(spec, address, port, "$SLURM_NODEID", program)
    text = " ".join(part if part == "$SLURM_NODEID" else shlex.quote(part) for part in inner)
    return [
        "srun", f"--nodes={spec.nodes}", f"--ntasks={spec.nodes}", "--ntasks-per-node=1",
        f"--cpus-per-task={spec.cpus}", "--kill-on-bad-exit=1", "--label", "bash", "-c", f"exec {text}",
    ]  # fmt: skip


def _launcher(spec: JobSpec, address: str, port: str, rank: str, program: Sequence[str]) -> list[str]:
    if spec.launch == "ddp":
        return _torchrun(spec, address, port, rank, program)
    return [
        sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(CONFIGS / f"{spec.launch}.yaml"),
        "--num_machines", str(spec.nodes), "--machine_rank", rank, "--num_processes", str(spec.world),
        "--main_process_ip", address, "--main_process_port", port, "--module", "sweeps.run", *program,
    ]  # fmt: skip


def _torchrun(spec: JobSpec, address: str, port: str, rank: str, program: Sequence[str]) -> list[str]:
    meeting = (
        ["--standalone"] if spec.nodes == 1 else ["--master-addr", address, "--master-port", port, "--node-rank", rank]
    )
    return [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", str(spec.nodes), "--nproc-per-node",
        str(spec.per_node), "--max-restarts", "0", *meeting, "--module", "sweeps.run", *program,
    ]  # fmt: skip


def _head(environment: Mapping[str, str]) -> tuple[str, str]:
    """Address of the job's first node, and a port of its own."""
    from sweeps import slurm

    nodelist, job = environment.get("SLURM_JOB_NODELIST"), environment.get("SLURM_JOB_ID")
    if not nodelist or not job:
        raise StoreError("a run on several nodes needs Slurm: SLURM_JOB_NODELIST is not set")
    return slurm.address(slurm.hostnames(nodelist)[0]), str(20000 + int(job) % 10000)


def run_here(folder: Path, spec: JobSpec) -> None:
    """A run of several processes on this machine, from a pool; an interrupt reaches all of them."""
    environment = {**os.environ, OUTPUT: str(folder / "start.log")}
    process = subprocess.Popen(command(folder, spec, environment), env=environment)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if code:
        raise RuntimeError(f"the launcher of {spec.world} processes ended with exit code {code}")
