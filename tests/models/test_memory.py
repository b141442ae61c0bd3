"""The memory estimate: parameter counts, bytes of real training, what the plan prints, and refusals."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from chat_corridor import LORA, make_policy, make_trainer

from sweeps import memory
from sweeps.cli import main
from sweeps.config import ConfigError, compose
from sweeps.memory import GIB, Layout
from sweeps.model_shapes import KNOWN, SMOLLM2, shape_of

MODELS = ("qwen2.5_1.5b", "qwen2.5_3b", "qwen2.5_7b", "qwen3_4b", "qwen3_8b")
PAPERS = {"paper_alfworld": "alfworld", "paper_webshop": "webshop", "paper_search_qa": "search_qa"}


@functools.cache
def composed(model, *overrides):
    return compose([f"model={model}", "protocol=paper_alfworld", "resources=gpu", *overrides])


def config(*overrides, model="qwen2.5_7b"):
    return copy.deepcopy(composed(model, *overrides))


@pytest.mark.parametrize(
    ("path", "billions"),
    [
        ("Qwen/Qwen2.5-1.5B-Instruct", 1.54), ("Qwen/Qwen2.5-3B-Instruct", 3.09), ("Qwen/Qwen2.5-7B-Instruct", 7.62),
        ("Qwen/Qwen3-4B", 4.02), ("Qwen/Qwen3-8B", 8.19),
    ],
)  # fmt: skip
def test_parameter_counts_are_the_published_ones(path, billions):
    assert KNOWN[path].parameters / 1e9 == pytest.approx(billions, abs=0.006)
    assert SMOLLM2.parameters == 134_515_008


@pytest.mark.parametrize("model", MODELS)
def test_every_preset_has_a_shape(model):
    assert shape_of(config(model=model)["model"]) is not None


@pytest.mark.parametrize("lora", [None, LORA, LORA | {"target_modules": ["q_proj", "down_proj"]}])
def test_held_bytes_are_those_of_a_real_training(tmp_path, lora):
    """Every tensor of the model, its gradients and AdamW's states, counted after an update."""
    policy = make_policy(tmp_path / "model")
    trainer = make_trainer(tmp_path / "run", policy, lora=lora, updates=1, optimizer="adamw_torch", kl_coefficient=0.1)
    gradients = []

    def count(*_):
        gradients.append(sum(p.grad.nbytes for p in trainer.model.parameters() if p.grad is not None))

    trainer.create_optimizer()
    trainer.optimizer.register_step_pre_hook(count)
    trainer.train()
    states = sum(
        v.nbytes for s in trainer.optimizer.state.values() for v in s.values() if torch.is_tensor(v) and v.dim()
    )
    weights = sum(p.nbytes for p in trainer.model.parameters())
    reference = sum(p.nbytes for p in trainer.ref_model.parameters()) if trainer.ref_model else 0
    settings = {"path": str(tmp_path / "model"), "dtype": "float32", "lora": lora, "kind": "hub"}
    described = {**config(), "model": {**config()["model"], **settings}}
    held = dict(memory.estimate(described, Layout()).held)
    held.pop("allowance")
    assert gradients[0] > 0
    assert sum(held.values()) == weights + gradients[0] + states + reference
    if lora is None:
        assert held == {"weights": weights, "gradients": gradients[0], "AdamW": states, "reference": reference}


def test_what_is_cut_and_what_is_not():
    single = memory.estimate(config(), Layout()).held
    fsdp = memory.estimate(config(), Layout(4, "fsdp")).held
    ddp = memory.estimate(config(), Layout(4, "ddp")).held
    zero = memory.estimate(config(), Layout(4, "deepspeed")).held
    parts = ("weights", "gradients", "AdamW", "reference")
    assert all(fsdp[name] == single[name] / 4 for name in parts)
    assert all(ddp[name] == single[name] for name in parts)
    assert ddp["gradient buckets"] == single["gradients"]
    assert zero["AdamW"] == single["AdamW"] / 4
    assert zero["weights"] == single["weights"] / 2 + single["weights"] / 4  # whole in bfloat16, float32 cut
    assert "reference" not in memory.estimate(config("protocol.kl_coefficient=0"), Layout()).held


def test_checkpointing_and_fewer_rows_take_less():
    def update(*overrides):
        return memory.estimate(config(*overrides), Layout()).update["activations"]

    whole = update("resources.gradient_checkpointing=false")
    assert update() < whole / 4
    assert update("resources.rows_per_microbatch=4") == update() / 2


def test_vllm_takes_its_share():
    alone = config("resources.generation.engine=vllm", model="qwen2.5_1.5b")
    guess = memory.estimate(alone, Layout())
    assert not guess.rollout
    edge = guess.total / 0.7
    assert guess.fits(edge * 1.001)
    assert not guess.fits(edge * 0.999)
    asleep = config("resources.generation.engine=vllm", "resources.generation.sleep=true", model="qwen2.5_1.5b")
    assert memory.estimate(asleep, Layout()).fits(edge * 0.999)


def test_an_unknown_model_is_never_refused(tmp_path):
    unknown = config(f"model.path={tmp_path}", model="hub")
    assert memory.estimate(unknown, Layout()) is None
    memory.check(unknown, Layout(), 1.0)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    assert memory.estimate(unknown, Layout()) is None
    (tmp_path / "config.json").write_text("{")
    assert memory.estimate(unknown, Layout()) is None


def test_a_local_folder_is_read(tmp_path):
    make_policy(tmp_path / "model")
    model = config(f"model.path={tmp_path / 'model'}", model="hub")["model"]
    weights = sum(p.numel() for p in make_policy(tmp_path / "model").model.parameters())
    assert shape_of(model).parameters == weights


def test_a_refusal_is_one_line_with_the_way_out():
    with pytest.raises(
        ConfigError, match=r"does not fit a GPU of 80 GiB: about \d+\.\d GiB .*model\.lora=16"
    ) as caught:
        memory.check(config(), Layout(), 80.0)
    assert "\n" not in str(caught.value)
    memory.check(config(), Layout(), None)
    memory.check(config("resources.generation.engine=vllm"), Layout(8, "fsdp"), 80.0)


def grid_file(folder, protocol, benchmark):
    path = folder / f"{protocol}.yaml"
    extra = ", benchmark.options.data: files" if benchmark == "search_qa" else ""
    path.write_text(
        f"about: all models\ncommon: {{resources: gpu, protocol: {protocol}, benchmark: {benchmark}{extra}}}\n"
        f"axes: {{model: [{', '.join(MODELS)}], algorithm: [graft], seed: [1]}}\n"
        "resources: [{gpus: 4, launch: fsdp, time: 60}]\n"
    )
    return path


def creditbench(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


@pytest.mark.parametrize(("protocol", "benchmark"), PAPERS.items())
def test_the_plan_prints_the_memory_of_every_model(tmp_path, capsys, protocol, benchmark):
    code, output, errors = creditbench(capsys, "plan", grid_file(tmp_path, protocol, benchmark), "--out", tmp_path)
    assert code == 0, errors
    lines = [line for line in output.splitlines() if line.startswith("memory ")]
    assert [line.split()[1].rstrip(",") for line in lines] == list(MODELS)
    assert all("GiB a GPU: weights" in line and "4 x fsdp" in line for line in lines)


def test_plan_and_submit_refuse_what_cannot_fit(tmp_path, capsys):
    path = grid_file(tmp_path, "paper_alfworld", "alfworld")
    small = ("--out", tmp_path, "--job", "gpu_memory=24")
    for command in (["plan"], ["submit", "--local", "1"]):
        code, _, errors = creditbench(capsys, *command, path, *small)
        assert code == 2
        assert len(errors.strip().splitlines()) == 1
        assert "does not fit a GPU of 24 GiB" in errors
    assert not (tmp_path / "runs").exists()
    adapted = ("--out", tmp_path, "--job", "gpu_memory=40", "model.lora=16", "--json")
    code, output, errors = creditbench(capsys, "plan", path, *adapted)
    assert code == 0, errors
    assert set(json.loads(output)["memory"]) == {f"{name} LoRA 16, 4 x fsdp" for name in MODELS}


def gpus_needed(model, size, *overrides):
    """The fewest GPUs, as the guide's table counts them: vLLM asleep in updates, the best share, FSDP."""
    engine = ("resources.generation.engine=vllm", "resources.generation.sleep=true")
    chosen = config(*engine, *overrides, model=model)
    for world in (1, 2, 4, 8, 16):
        for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
            chosen["resources"]["generation"]["gpu_share"] = share
            if memory.estimate(chosen, Layout(world, "fsdp" if world > 1 else None)).fits(size * GIB):
                return str(world)
    return "-"


def test_the_guide_s_table_is_what_the_estimate_says():
    guide = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in guide.splitlines()
        if line.startswith("| qwen")
    ]
    table = {row[0]: row[1:] for row in rows}
    assert list(table) == list(MODELS)
    for model, row in table.items():
        full = [gpus_needed(model, size) for size in (24, 40, 80, 141)]
        assert row == full + [gpus_needed(model, size, "model.lora=16") for size in (24, 40, 80, 141)], model


def test_vllm_s_share_must_hold_the_model():
    tight = config("resources.generation.engine=vllm", "resources.generation.gpu_share=0.1", "model.lora=16")
    with pytest.raises(ConfigError, match=r"vLLM 10% of the GPU \(it needs 14\.3\); try another .*gpu_share"):
        memory.check(tight, Layout(), 80.0)


def test_training_asks_the_gpu_before_it_loads_a_model(monkeypatch):
    from sweeps import session
    from sweeps.processes import Processes

    chosen = config()
    monkeypatch.setattr(session.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        session.torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80 * GIB)
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"model=qwen2\.5_7b does not fit a GPU of 80 GiB"):
        session.check_memory(chosen, Processes(chosen))
    session.check_memory(config("resources.device=cpu"), Processes(chosen))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert Processes(chosen).launch == "fsdp"
