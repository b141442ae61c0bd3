"""Any causal LM with a chat template: transformers' own generation and TRL's own head, from a folder."""

from __future__ import annotations

import json

import torch
from corridor import Corridor
from test_gradients import Capture, keep_rows, make_trainer, training_rows
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from algorithms.evaluation import sampler
from algorithms.policy import ChatPolicy, load_policy

TEMPLATE = (
    "{% for m in messages %}<user> {{ m['content'] }} {% endfor %}{% if add_generation_prompt %}<agent>{% endif %}"
)
CHAT = {"kind": "hub", "name": "hub", "decoding": "free", "dtype": "float32", "thinking": None}


class Talking(Corridor):
    """The corridor for a chat model: any reply that holds `left` or `right` is well formed."""

    def parse(self, reply):
        from benchmarks.base import ParsedAction

        words = [word for word in reply.split() if word in ("left", "right")]
        return ParsedAction(f"go {words[0]}" if words else reply, bool(words))


def save_model(folder, hidden_size=32, tie_word_embeddings=False):
    words = ["<pad>", "<eos>", "<unk>", "<user>", "<agent>", *Corridor().lexicon(), "[act]"]
    inner = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=hidden_size, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=tie_word_embeddings,
        initializer_range=0.2,
        pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


def hand_gradients(model, rows):
    """Token mean of the clipped surrogate at ratio 1, row by row without padding."""
    model.zero_grad(set_to_none=True)
    tokens = sum(len(reply) for _, reply, _ in rows)
    for prompt, reply, advantage in rows:
        logits = model(input_ids=torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
        logps = logits.log_softmax(-1).gather(1, torch.tensor(reply)[:, None])[:, 0]
        (-advantage * (logps - logps.detach()).exp().sum() / tokens).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def test_a_chat_model_is_sampled_and_trained(tmp_path):
    save_model(tmp_path / "model")
    policy = load_policy(CHAT, Talking(), folder=tmp_path / "model")
    assert isinstance(policy, ChatPolicy)
    capture = Capture()
    trainer = make_trainer(tmp_path / "run", policy=policy, callbacks=[capture], updates=2, rows_per_microbatch=9)
    kept = keep_rows(trainer)
    trainer.train()
    rows = training_rows(kept[0])
    first_prompt = policy.tokenizer.decode(rows[0][0])
    assert first_prompt.startswith("<user> reach room")
    assert first_prompt.endswith("<agent>")
    assert len({round(advantage, 5) for *_, advantage in rows}) > 2
    twin = LlamaForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    expected = hand_gradients(twin, rows)
    scale = max(float(g.abs().max()) for g in expected.values())
    assert scale > 1e-4
    for name, gradient in expected.items():
        assert float((capture.gradients[0][name] - gradient).abs().max()) < 1e-4 * scale + 1e-7, name
    logged = trainer.rows_logged[0]
    assert 0 < logged["invalid_format"] < 1


def test_a_model_s_own_sampling_settings_change_no_reply(tmp_path):
    """Qwen2.5's generation_config.json holds such settings; TRL's training and vLLM do not read them."""
    save_model(tmp_path / "model")
    file = tmp_path / "model" / "generation_config.json"
    taste = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "top_k": 2, "eos_token_id": [1, 7]}
    texts = [{}, {"eos_token_id": [1, 7]}, taste]
    plain = json.loads(file.read_text())
    prompts = [[3, 5 + i, 6, 7, 4] for i in range(8)]
    replies = []
    for own in texts:
        file.write_text(json.dumps({**plain, **own}))
        policy = load_policy(CHAT, Talking(), folder=tmp_path / "model")
        replies.append(sampler(policy, temperature=0.0, max_new_tokens=12)(prompts)[0])
    assert replies[1] == replies[2]
    assert policy.ends == [1, 7]
    assert any(len(reply) != len(set(reply)) for reply in replies[1])  # a penalty would have found something
