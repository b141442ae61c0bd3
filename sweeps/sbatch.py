"""sbatch through submitit's executor; apart from the rest, as only a submission needs to import submitit."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.slurm.slurm import SlurmExecutor

from sweeps import slurm
from sweeps.files import StoreError

_LIMIT = re.compile(r"submit limit|QOSMaxSubmit|MaxSubmit|AssocMaxSubmit|MaxJobCount|job submit|temporarily", re.I)


class ArrayExecutor(SlurmExecutor):
    """submitit's executor, for arrays of a command instead of pickled functions: no pickle is written or read, and the
    program replaces the shell, so that a signal to the batch script reaches it."""

    def submit_command(self, command: str, count: int, flags: Mapping[str, Any]) -> str:
        """Submit elements 0 to count-1 and return the array's id; LimitError where the site takes no more jobs."""
        self._prepare(count, flags)
        try:
            with slurm.clean_environment(), contextlib.redirect_stderr(io.StringIO()):  # submitit prints what it raises
                return str(self._submit_command(f"exec {command}").job_id)
        except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as error:
            message = _sbatch_message(str(error))
            raise (slurm.LimitError if _LIMIT.search(message) else StoreError)(f"sbatch failed: {message}") from None

    def script(self, command: str, count: int, flags: Mapping[str, Any]) -> str:
        """The script that `submit_command` would submit."""
        self._prepare(count, flags)
        return self._make_submission_file_text(f"exec {command}", "")

    def _prepare(self, count: int, flags: Mapping[str, Any]) -> None:
        self.update_parameters(additional_parameters=dict(flags), stderr_to_stdout=True, use_srun=False)
        self.parameters["map_count"] = count

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        text = super()._make_submission_file_text(command, uid)
        return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#SBATCH --wckey"))


def _sbatch_message(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "sbatch: error" in line]
    return lines[-1].removeprefix("sbatch: error: ") if lines else slurm.first_line(text)


def executor(folder: Path, name: str, setup: Sequence[str]) -> ArrayExecutor:
    """An executor that writes its script below `folder`."""
    made = ArrayExecutor(folder)
    made.update_parameters(job_name=name, setup=list(setup))
    return made
