"""Run by torchrun or accelerate on two gloo processes: one update of a chat model, and what each process saw, as JSON.

chat_processes.py FOLDER [lora]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from chat_corridor import LORA, make_policy, make_trainer
from test_loss_means import by_hand, watched

folder, lora = Path(sys.argv[1]), LORA if "lora" in sys.argv else None
policy = make_policy(folder / "model")
trainer = make_trainer(
    folder / "run", policy, lora=lora, goal="grpo_c", epochs=2, updates=1, kl_coefficient=0.1, learning_rate=0.3,
    rows_per_microbatch=7, world=2,
)  # fmt: skip
batches, weights = watched(trainer)
trainer.train()
whole = trainer.accelerator.get_state_dict(trainer.model_wrapped)  # collective where weights are sharded
record = {
    "rows": batches[0]["completion_ids"].tolist(),
    "weights": {n.removeprefix("module."): p.float().flatten().tolist() for n, p in whole.items()},
    "logged": trainer.rows_logged[0] if trainer.rows_logged else None,
}
if lora is None and trainer.accelerator.distributed_type == "MULTI_CPU":
    twin = make_policy(folder / "model").model
    steps = [by_hand(twin, batches[0], start, by_rows=True) for start in weights]
    record["sums"] = {name: sum(step[name] for step in steps) for name in steps[0]}
rank = trainer.accelerator.process_index
(folder / f"rank{rank}.json").write_text(json.dumps(record))
torch.save(dict(batches[0]), folder / f"batch{rank}.pt")
