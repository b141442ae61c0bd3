"""Run by torchrun on two gloo processes: one update, and what each process saw, as JSON per rank."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from test_gradients import Capture, keep_rows, make_trainer

from algorithms.collector import rollout_columns

folder, goal = Path(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
capture = Capture()
trainer = make_trainer(folder / "run", goal=goal, rows_per_microbatch=7, callbacks=[capture], updates=1, world=2)
kept = keep_rows(trainer)
trainer.train()
(episodes, _), advantages = kept[0]
record = {
    "columns": rollout_columns(episodes),
    "advantages": advantages.tolist(),
    "rows": [(s.prompt_ids, s.completion_ids) for e in episodes for s in e.steps],
    "gradients": {n.removeprefix("module."): g.flatten().tolist() for n, g in capture.gradients[0].items()},
    "losses": capture.losses,
    "logged_rows": [row["rows"] for row in trainer.rows_logged],
}
(folder / f"rank{trainer.accelerator.process_index}.json").write_text(json.dumps(record))
