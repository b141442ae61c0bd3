"""The processes that one run is trained by, and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object


class Processes:
    """The processes that train one run together; a launcher's variables say how many. Rank 0 writes the store."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self._state = PartialState(cpu=config["resources"]["device"] == "cpu") if self.world > 1 else None
        self.rank = self._state.process_index if self._state else 0

    @property
    def device(self) -> torch.device | str:
        """The GPU of this process."""
        return self._state.device if self._state else "cuda"

    @property
    def launch(self) -> str | None:
        """How they were started, by what accelerate's launcher tells them; None for one alone."""
        for name in ("fsdp", "deepspeed"):
            if os.environ.get(f"ACCELERATE_USE_{name.upper()}") == "true":
                return name
        return "ddp" if self.world > 1 else None

    def first(self) -> Any:
        """A context that rank 0 goes through before the others do."""
        return self._state.main_process_first() if self._state else nullcontext()

    def gather(self, rows: list[Any]) -> list[Any]:
        """The rows of all processes, in order of rank, everywhere."""
        return list(gather_object(rows)) if self._state else rows

    def any(self, wish: bool) -> bool:
        """Whether any process wishes it; all processes must ask."""
        return any(self.gather([wish])) if self._state else wish
