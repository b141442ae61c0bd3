"""The optimizer step of the trainer against a hand computation: row by row, no padding, plain log_softmax."""

from __future__ import annotations

import torch
from corridor import Corridor
from transformers import TrainerCallback

from algorithms.behavior_cloning import build_network, build_tokenizer
from algorithms.collector import Collector
from algorithms.objectives import objective
from algorithms.policy import TinyPolicy
from algorithms.trainer import AgentTrainer, CreditAssignment, Recorder
from algorithms.trl_settings import grpo_config

MODEL = {"hidden_size": 32, "intermediate_size": 64, "layers": 2, "heads": 2}
PROTOCOL = {
    "group_size": 4, "tasks_per_update": 3, "updates": 2, "horizon": 6, "temperature": 1.0, "max_response_tokens": 6,
    "learning_rate": 0.1, "lr_warmup_updates": 0, "lr_schedule": "constant", "adam_betas": [0.9, 0.95],
    "max_grad_norm": 0.0, "clip_range": 0.2, "kl_coefficient": 0.0, "minibatches": 1, "epochs": 1,
    "checkpoint_every": 1,
}  # fmt: skip
RESOURCES = {
    "device": "cpu",
    "gradient_checkpointing": False,
    "generation": {"engine": "transformers"},
    "report_to": [],
}
EPS = 0.2


class Capture(TrainerCallback):
    def __init__(self):
        self.gradients, self.losses = [], []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(logs["loss"])


def make_policy(seed=0, decoding="constrained"):
    benchmark = Corridor()
    tokenizer = build_tokenizer(benchmark.lexicon())
    return TinyPolicy(build_network(MODEL, len(tokenizer), seed), tokenizer, benchmark, decoding)


def make_trainer(
    tmp_path, *, goal="ppo", estimator="gigpo", rows_per_microbatch=8, policy=None, callbacks=(), world=1, **protocol
):
    settings = {**PROTOCOL, **protocol}
    policy = policy or make_policy()
    args = grpo_config(settings, RESOURCES, objective(goal), seed=3, folder=tmp_path, world=world)
    args.optim, args.save_strategy = "sgd", "no"
    collector = Collector(
        policy.benchmark, policy, policy.benchmark.pool(12), horizon=6, state_key="observation", history=2
    )
    rows = []
    trainer = AgentTrainer(
        collector=collector,
        tasks=policy.benchmark.task_set("train", 12),
        credit=CreditAssignment(estimator, {"invalid_action_penalty": 0.1}),
        recorder=Recorder(rows.append),
        args=args,
        rows_per_microbatch=rows_per_microbatch,
        callbacks=list(callbacks),
    )
    trainer.rows_logged = rows
    return trainer


def keep_rows(trainer):
    """Record what each update trains on: (prompt ids, reply ids, advantage) per row."""
    kept, collect, estimate = [], trainer._collect, trainer._estimate

    def collecting(inputs):
        kept.append([collect(inputs), None])
        return kept[-1][0]

    def estimating(episodes):
        kept[-1][1] = estimate(episodes)
        return kept[-1][1]

    trainer._collect, trainer._estimate = collecting, estimating
    return kept


def allowed_words(prompt, reply_so_far, config):
    """The obvious way to read a menu: list the commands, keep those that start like the reply."""
    menu = prompt[1 : prompt.index(config.end_token_id)]
    commands, current = [], []
    for token in [*menu, config.or_token_id]:
        if token == config.or_token_id:
            commands.append([*current, config.eos_token_id])
            current = []
        else:
            current.append(token)
    n = len(reply_so_far)
    return sorted({c[n] for c in commands if c[:n] == reply_so_far and len(c) > n})


def reply_logps(model, prompt, reply):
    """Log-probabilities of a reply under the restricted distribution, from the decoder itself."""
    config = model.config
    shown = prompt[prompt.index(config.end_token_id) + 1 :] if prompt[0] == config.menu_token_id else prompt
    hidden = model.model(input_ids=torch.tensor([shown + reply])).last_hidden_state[0, len(shown) - 1 : -1]
    logits = hidden @ model.model.embed_tokens.weight.T
    logps = []
    for i, token in enumerate(reply):
        row = logits[i]
        if prompt[0] == config.menu_token_id:
            words = allowed_words(prompt, reply[:i], config)
            logps.append(row[token] - torch.logsumexp(row[words], 0))
        else:
            logps.append(torch.log_softmax(row, -1)[token])
    return torch.stack(logps)


def by_hand(model, rows, goal, old=None):
    """(loss, gradients, log-probabilities) of the clipped surrogate over `rows`."""
    model.zero_grad(set_to_none=True)
    tokens, value, logps = sum(len(r) for _, r, _ in rows), 0.0, []
    for i, (prompt, reply, advantage) in enumerate(rows):
        lp = reply_logps(model, prompt, reply)
        logps.append(lp.detach())
        log_ratio = lp - (lp.detach() if old is None else old[i])
        if goal == "grpo_c":
            log_ratio = log_ratio.mean()[None]
        ratio = log_ratio.exp()
        surrogate = -torch.min(ratio * advantage, ratio.clamp(1 - EPS, 1 + EPS) * advantage)
        loss = surrogate.sum() / tokens if goal == "ppo" else surrogate.mean() / len(rows)
        loss.backward()
        value += loss.item()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return value, gradients, logps


def training_rows(kept):
    (episodes, _), advantages = kept
    steps = [s for e in episodes for s in e.steps]
    return [(s.prompt_ids, s.completion_ids, float(a)) for s, a in zip(steps, advantages, strict=True)]


def largest_difference(a, b):
    return max((a[n] - b[n]).abs().max().item() for n in a)


def random_advantages(trainer):
    """An untrained policy writes nothing valid without a menu, so no estimator finds a difference to credit."""
    trainer._estimate = lambda episodes: torch.randn(sum(len(e.steps) for e in episodes))


def check(tmp_path, goal, rows_per_microbatch, decoding="constrained", epochs=2):
    capture = Capture()
    trainer = make_trainer(
        tmp_path, goal=goal, rows_per_microbatch=rows_per_microbatch, callbacks=[capture], epochs=epochs, updates=1,
        policy=make_policy(decoding=decoding),
    )  # fmt: skip
    trainer.args.logging_steps = trainer.state.logging_steps = 1
    if decoding == "free":
        random_advantages(trainer)
    kept = keep_rows(trainer)
    trainer.train()
    rows, twin, old = training_rows(kept[0]), make_policy(decoding=decoding).model, None
    assert len({round(a, 6) for *_, a in rows}) > 3
    for k in range(epochs):
        value, gradients, logps = by_hand(twin, rows, goal, old)
        old = old or logps
        scale = max(g.abs().max().item() for g in gradients.values())
        assert scale > 1e-4
        assert largest_difference(capture.gradients[k], gradients) < 1e-4 * scale + 1e-7
        assert abs(capture.losses[k] - value) < 1e-5
        with torch.no_grad():
            for name, parameter in twin.named_parameters():
                parameter -= 0.1 * gradients[name]
    after = dict(trainer.model.named_parameters())
    assert max((p - after[n]).abs().max().item() for n, p in twin.named_parameters()) < 1e-5


def test_token_clip_equals_hand_computation(tmp_path):
    check(tmp_path, "ppo", rows_per_microbatch=1000)


def test_token_clip_with_filler_rows(tmp_path):
    check(tmp_path, "ppo", rows_per_microbatch=7)


def test_step_level_ratio_with_filler_rows(tmp_path):
    check(tmp_path, "grpo_c", rows_per_microbatch=7)


def test_free_decoding(tmp_path):
    check(tmp_path, "ppo", rows_per_microbatch=7, decoding="free")
