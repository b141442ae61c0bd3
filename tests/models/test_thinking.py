"""Chat templates with a thinking switch, cut replies, prompts over the limit: what a chat policy shows and reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chat_corridor import CHAT, Talking, make_policy, save_model
from transformers import AutoTokenizer

import benchmarks
from algorithms.collector import Collector, Episode
from algorithms.evaluation import evaluate, sampler
from algorithms.generation import BatchEngine
from algorithms.policy import PolicyError, load_policy
from benchmarks.base import StepView

# The switch as Qwen3's template has it: thoughts of past replies are not repeated, and without thinking the reply's
# place opens with an empty thought.
SWITCH = (
    "{%- for m in messages %}{%- set content = m['content'] %}"
    "{%- if m['role'] == 'assistant' and '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{- '<' + m['role'] + '>\\n' + content + '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<agent>\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}{%- endif %}"
)
OPENS = SWITCH.replace("{%- if enable_thinking is defined and enable_thinking is false %}", "{%- if enable_thinking %}"
                       "{{- '<think>\\n' }}{%- else %}")  # fmt: skip


class Bytes:
    """A tokenizer of single characters around a model folder's own, so that text comes back as it was."""

    def __init__(self, template):
        self.chat_template, self.template = template, template
        self.eos_token_id, self.pad_token_id = 1, 0

    def __call__(self, text, add_special_tokens=False):
        return {"input_ids": [ord(c) + 2 for c in text]}

    def decode(self, ids, skip_special_tokens=True):
        return "".join(chr(i - 2) for i in ids if i > 1)

    def apply_chat_template(self, messages, **options):
        from jinja2 import Environment

        options.pop("tokenize")
        return Environment(trim_blocks=True).from_string(self.template).render(messages=messages, **options)


def chat(tmp_path, benchmark, thinking=None, template=SWITCH, limit=100_000):
    if not (tmp_path / "model").exists():
        save_model(tmp_path / "model")
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
        tokenizer.chat_template = template
        tokenizer.save_pretrained(tmp_path / "model")
    policy = load_policy({**CHAT, "thinking": thinking}, benchmark, folder=tmp_path / "model", max_prompt_tokens=limit)
    policy.tokenizer = Bytes(template)
    return policy


def view_of(benchmark, split="train", history=()):
    pool = benchmark.pool(1)
    (observation,) = pool.reset(list(benchmark.task_set(split, 1).tasks))
    pool.close()
    return StepView(observation, len(history), 15, tuple(history))


def ids(text):
    return Bytes(SWITCH)(text)["input_ids"]


@pytest.fixture(scope="module")
def alfworld():
    return benchmarks.load("alfworld", success_reward=10.0, data="synth-small")


def test_the_switch_is_the_template_s(tmp_path, alfworld):
    view = view_of(alfworld)
    endings = {}
    for thinking in (None, True, False):
        policy = chat(tmp_path, alfworld, thinking)
        endings[thinking] = policy.tokenizer.decode(policy.render(view)).rpartition("<agent>")[2]
    assert endings == {None: "\n", True: "\n", False: "\n<think>\n\n</think>\n\n"}


def test_a_switch_that_is_not_there_is_refused(tmp_path):
    save_model(tmp_path / "model")
    with pytest.raises(
        PolicyError, match=r"model\.thinking=true: the chat template .* no such switch.*=null"
    ) as caught:
        load_policy({**CHAT, "thinking": True}, Talking(), folder=tmp_path / "model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "action", "valid"),
    [
        ("<think>\nfirst <action>look</action>\n</think>\n\n<action>go to bed 1</action>", "go to bed 1", True),
        ("<think>\nI see.\n</think>\n\n<think>so</think><action>look</action>", "look", True),
        ("<think>so</think><action>look</action>", "look", True),
        ("<action>look</action>", "look", False),  # it did not think
        ("<think>\nfirst <action>look</action> and then", "", False),  # cut within the thought
        ("<think>\nhm\n</think>\n\ngo to bed 1", "go to bed 1", False),
    ],
)
def test_thoughts_are_no_part_of_the_reply(tmp_path, alfworld, reply, action, valid):
    parsed = chat(tmp_path, alfworld, thinking=True).read(ids(reply))
    assert (parsed.action, parsed.format_valid) == (action, valid)
    assert "hm" not in parsed.shown
    assert "I see" not in parsed.shown


@pytest.mark.parametrize("thinking", [None, False])
def test_without_thinking_replies_are_read_whole(tmp_path, alfworld, thinking):
    reply = "<think>first <action>look</action></think><action>go to bed 1</action>"
    policy = chat(tmp_path, alfworld, thinking=thinking)
    assert policy.read(ids(reply)) == alfworld.parse(reply)


def test_a_template_may_open_the_thought_itself(tmp_path, alfworld):
    policy = chat(tmp_path, alfworld, thinking=True, template=OPENS)
    assert policy.tokenizer.decode(policy.render(view_of(alfworld))).endswith("<agent>\n<think>\n")
    parsed = policy.read(ids("so <action>look</action>\n</think>\n\n<action>go to bed 1</action>"))
    assert (parsed.action, parsed.format_valid) == ("go to bed 1", True)
    assert policy.read(ids("so <action>look</action> and")).action == ""


def test_react_shows_no_thoughts_of_the_model_in_later_prompts(tmp_path, alfworld):
    from algorithms.prompting import ReAct

    policy = chat(tmp_path, ReAct(alfworld), thinking=True)
    parsed = policy.read(ids("<think>\nsecret\n</think>\n\n<think>open it</think><action>look</action> tail"))
    assert parsed.shown == "<think>open it</think><action>look</action>"


def test_a_growing_text_goes_on_where_it_ends(tmp_path):
    """Search-R1's context is one text, thoughts included, which a template would take out of past replies."""
    search = benchmarks.load("search_qa", success_reward=1.0, profile="search_r1")
    grown = "<think>who?</think><search>x</search>\n\n<information>y</information>\n\n"
    view = view_of(search, history=[("", "<think>who?</think><search>x</search>")])
    for thinking, opening in ((None, ""), (False, "<think>\n\n</think>\n\n")):
        policy = chat(tmp_path, search, thinking)
        text = policy.tokenizer.decode(
            policy._ids([*search.messages(view)[:1], {"role": "assistant", "content": grown}])
        )
        assert text.endswith(f"<agent>\n{opening}{grown}")


@pytest.mark.parametrize(
    ("name", "options", "reward"),
    [("alfworld", {"data": "synth-small"}, 10.0), ("webshop", {}, 10.0), ("search_qa", {"profile": "strict"}, 1.0)],
)
def test_history_goes_first_and_the_task_stays(tmp_path, name, options, reward):
    benchmark = benchmarks.load(name, success_reward=reward, **options)
    view = view_of(benchmark)
    past = tuple((f"what was seen {i}", f"what was done {i}") for i in range(2))
    long = replace(view, step=2, history=past)
    full = len(chat(tmp_path, benchmark).render(long))
    bare = len(chat(tmp_path, benchmark).render(replace(long, history=())))
    assert bare < full
    task = view.observation.goal.strip()
    for limit in (full - 1, bare):
        policy = chat(tmp_path, benchmark, limit=limit)
        text = policy.tokenizer.decode(policy.render(long))
        assert len(text) <= limit
        assert task in text
        assert "what was done 0" not in text
        assert ("what was done 1" in text) == (limit == full - 1)
    with pytest.raises(PolicyError, match=r"over protocol\.max_prompt_tokens"):
        chat(tmp_path, benchmark, limit=bare - 1).render(long)


def test_cut_replies_are_flagged(tmp_path):
    policy = make_policy(tmp_path / "model")
    collector = Collector(
        policy.benchmark, policy, policy.benchmark.pool(4), horizon=3, state_key="observation", history=1
    )  # fmt: skip
    left, right, eos = (policy.tokenizer.get_vocab()[word] for word in ("left", "right", "<eos>"))
    replies = iter([[right, right], [right, eos], [left, left]])
    engine = BatchEngine(lambda prompts: ([next(replies)] + [[eos]] * (len(prompts) - 1), None))
    task = policy.benchmark.task_set("train", 8).tasks[4]
    episode = Episode(task, "0", 0)
    collector.collect([episode], engine)
    assert [step.truncated for step in episode.steps] == [True, False, True][: len(episode.steps)]
    assert len(episode.steps) > 1


def test_any_of_the_model_s_end_tokens_ends_a_reply(tmp_path):
    policy = make_policy(tmp_path / "model")
    policy.model.generation_config.eos_token_id = [1, 7]
    assert policy.ends == [1, 7]
    assert [policy.truncated(reply) for reply in ([], [5], [5, 7], [5, 1])] == [True, True, False, False]


def test_evaluated_episodes_count_cut_replies(tmp_path):
    policy = make_policy(tmp_path / "model")
    collector = Collector(
        policy.benchmark, policy, policy.benchmark.pool(4), horizon=3, state_key="observation", history=1
    )  # fmt: skip
    engine = BatchEngine(sampler(policy, temperature=1.0, max_new_tokens=1))
    rows = evaluate(collector, policy.benchmark.task_set("train", 4), engine, repeats=2, seed=0, slots=4)
    assert sum(row["truncated"] for row in rows) > 0.8 * sum(
        row["steps"] for row in rows
    )  # one token is rarely the end
    assert all(0 <= row["truncated"] <= row["steps"] for row in rows)
