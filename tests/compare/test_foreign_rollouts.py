"""Rollouts of other trainers: column maps, formats, and what can't be used."""

from __future__ import annotations

import json

import pyarrow
import pyarrow.parquet as parquet
import pytest

from algorithms import RolloutBatch, RolloutError, estimate
from analysis.foreign import FORMATS, column_map, read_rollouts
from analysis.foreign_records import ColumnMap, to_batch
from sweeps import cli


def verl_line(group, trajectory, state, action, reward, **more):
    return {
        "uid": group, "traj_uid": trajectory, "anchor_obs": state, "response": action, "rewards": reward,
        "is_action_valid": 1, "active_masks": True, **more,
    }  # fmt: skip


VERL = [
    verl_line("u1", "t1", "hall", "go east", 0.0),
    verl_line("u1", "t2", "hall", "go west", 0.0, is_action_valid=0),
    verl_line("u1", "t1", "kitchen", "take pot", 10.0),
    verl_line("u1", "t2", "attic", "look", 0.0),
    verl_line("u1", "t2", "attic", "look", 0.0, active_masks=False),
]


def chat(*texts):
    return [{"role": "assistant" if i % 2 == 0 else "tool", "content": text} for i, text in enumerate(texts)]


PROMPT = [{"role": "user", "content": "Find it."}]
TRL = [
    {"step": 1, "prompt": PROMPT, "completion": chat("search a", "found a", "a"), "reward": 1.0},
    {"step": 1, "prompt": PROMPT, "completion": chat("search b", "nothing", "b"), "reward": 0.0},
    {"step": 2, "prompt": PROMPT, "completion": chat("a"), "reward": 1.0},
]
RECORD = {"ep": {"id": 7}, "task": "t", "obs": {"b": 1, "a": 2}, "act": None, "say": "x", "done": True, "ok": 1}


def lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def columns_of(batch, *names):
    return [tuple(batch.column(name)[i] for name in names) for i in range(len(batch))]


class TestVerlAgent:
    def test_lines_become_steps(self, tmp_path):
        batch = read_rollouts(lines(tmp_path / "a.jsonl", VERL))
        assert batch.success_reward == 10.0
        assert columns_of(
            batch, "trajectory", "step", "state", "action", "next_state", "valid", "reward", "success"
        ) == [
            ("t1", 0, "hall", "go east", "kitchen", True, 0.0, True),
            ("t1", 1, "kitchen", "take pot", "(end: solved)", True, 10.0, True),
            ("t2", 0, "hall", "go west", "attic", False, 0.0, False),
            ("t2", 1, "attic", "look", "(end: not solved)", True, 0.0, False),
        ]

    def test_a_step_number_orders_the_lines_and_a_score_decides(self, tmp_path):
        records = [
            verl_line("u", "t", "b", "y", 0.0, turn_idx=1, episode_rewards=0.5),
            verl_line("u", "t", "a", "x", 0.0, turn_idx=0, episode_rewards=0.5),
        ]
        batch = read_rollouts(lines(tmp_path / "a.jsonl", records))
        assert columns_of(batch, "step", "state", "success") == [(0, "a", True), (1, "b", True)]

    def test_copies_of_a_step_count_once_and_contradictions_are_refused(self, tmp_path):
        first, second = (verl_line("u", "t", state, "x", 0.0, turn_idx=i) for i, state in enumerate("ab"))
        batch = read_rollouts(lines(tmp_path / "a.jsonl", [second, first, second, first]))
        assert columns_of(batch, "step", "state") == [(0, "a"), (1, "b")]
        with pytest.raises(RolloutError, match="'t' of group 'u' has two different records of its step 1"):
            read_rollouts(lines(tmp_path / "b.jsonl", [first, second, {**second, "anchor_obs": "c"}]))

    def test_success_goes_before_score_and_rewards(self, tmp_path):
        records = [verl_line("u", "t", "a", "x", 3.0, won=False, episode_rewards=3.0)]
        assert not read_rollouts(lines(tmp_path / "a.jsonl", records)).column("success").any()

    def test_estimators_read_it(self, tmp_path):
        batch = read_rollouts(lines(tmp_path / "a.jsonl", VERL))
        assert estimate("rtmc", batch).advantages[0] > 0 > estimate("rtmc", batch).advantages[2]


class TestTRL:
    def test_messages_become_steps(self, tmp_path):
        batch = read_rollouts(lines(tmp_path / "a.jsonl", TRL))
        assert columns_of(batch, "step", "state", "action", "next_state", "reward", "success")[:3] == [
            (0, "Find it.", "search a", "found a", 0.0, True),
            (1, "found a", "a", "(end: solved)", 1.0, True),
            (0, "Find it.", "search b", "nothing", 0.0, False),
        ]

    def test_a_group_is_one_prompt_in_one_update(self, tmp_path):
        batch = read_rollouts(lines(tmp_path / "a.jsonl", TRL))
        assert batch.layout.groups == 2
        assert batch.layout.trajectories == 3

    def test_a_table_of_parquet_and_plain_texts(self, tmp_path):
        records = [{"step": 0, "prompt": "1+1?", "completion": text, "accuracy": float(text == "2")} for text in "23"]
        parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "completions_00000.parquet")
        batch = read_rollouts(tmp_path / "completions_00000.parquet", columns={"score": "accuracy"})
        assert columns_of(batch, "state", "action", "success") == [("1+1?", "2", True), ("1+1?", "3", False)]

    def test_tool_calls_and_parts_are_read(self):
        call = {"type": "function", "function": {"name": "look", "arguments": {"at": 1}}}
        parts = [{"type": "text", "text": "a room"}, {"type": "image"}]
        messages = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": parts}]
        record = {"step": 0, "prompt": "p", "completion": messages, "reward": 0.0}
        batch = to_batch([record], FORMATS["trl"])
        assert batch.column("action")[0] == '{"arguments": {"at": 1}, "name": "look"}'
        assert batch.column("next_state")[0] == "a room"


class TestMaps:
    def test_paths_alternatives_and_lists(self, tmp_path):
        file = tmp_path / "map.yaml"
        file.write_text(
            "columns: {group: [task, ep.id], trajectory: ep.id, state: obs, action: act|say, success: ok}\n"
            "success_reward: 5\n"
        )
        batch = read_rollouts(lines(tmp_path / "a.jsonl", [RECORD]), file)
        assert columns_of(batch, "group", "trajectory", "state", "action", "reward", "success") == [
            ('["t", 7]', "7", '{"a": 2, "b": 1}', "x", 5.0, True)
        ]

    def test_columns_go_over_a_format(self, tmp_path):
        records = [{**VERL[0], "obs": "elsewhere"}]
        batch = read_rollouts(lines(tmp_path / "a.jsonl", records), "verl-agent", {"state": "obs"})
        assert batch.column("state").tolist() == ["elsewhere"]

    def test_our_own_files_need_no_map(self, tmp_path):
        first = read_rollouts(lines(tmp_path / "a.jsonl", VERL))
        first.write_parquet(tmp_path / "b.parquet")
        again = read_rollouts(tmp_path / "b.parquet")
        assert isinstance(again, RolloutBatch)
        assert columns_of(again, *again) == columns_of(first, *first)

    @pytest.mark.parametrize(
        ("columns", "options", "message"),
        [
            ({"group": "g"}, {}, "'trajectory' is not mapped"),
            ({"group": "g"}, {"rows": "trajectories"}, "'messages' is not mapped"),
            ({"group": "g"}, {"rows": "words"}, "must be one of steps, trajectories"),
            ({"gruop": "g"}, {}, "'gruop' is not a column"),
            ({"group": 3}, {}, "must name a field"),
            ({"group": []}, {}, "must name a field"),
            ({**FORMATS["verl-agent"].columns}, {"success_reward": "ten"}, "success_reward is 'ten'"),
        ],
    )
    def test_a_wrong_map_is_one_clear_error(self, columns, options, message):
        with pytest.raises(RolloutError, match=f"column map: .*{message}"):
            ColumnMap(columns, **options)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("columns: [", "not YAML"),
            ("rows: steps", "a column map has `columns`"),
            ("columns: {group: g}\nmore: 1", "unknown key 'more'"),
            ("columns: {group: g}", "map.yaml: column map: 'trajectory' is not mapped"),
        ],
    )
    def test_a_wrong_file_names_itself(self, tmp_path, text, message):
        (tmp_path / "map.yaml").write_text(text)
        with pytest.raises(RolloutError, match=message):
            column_map(tmp_path / "map.yaml")

    def test_an_unknown_format_names_the_known(self):
        with pytest.raises(RolloutError, match=r"neither a known format \(verl-agent, trl\) nor a file"):
            column_map("verl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no record in it"),
        ("{\n", "line 1: not JSON"),
        ('{"uid": 1, "traj_uid": 1}\n[1]\n', "line 2: a record is a JSON object, not list"),
        ('{"a": 1}\n', "not a known format; its fields are a"),
        (
            json.dumps({**VERL[0], "uid": 1.5}),
            "record 1, field 'uid' .column 'group'.: expected text or a whole number",
        ),
        (json.dumps({"uid": 1, "traj_uid": 1, "response": "x"}), "record 1: no field 'anchor_obs' for column 'state'"),
        (json.dumps({**VERL[0], "rewards": "much"}), "expected a number, got 'much'"),
        (json.dumps({**VERL[0], "is_action_valid": "yes"}), "expected true or false, got 'yes'"),
        (json.dumps({**VERL[0], "active_masks": False}), "no step is left"),
        (json.dumps({**VERL[0], "rewards": None}), "neither success nor score nor reward"),
        (json.dumps({**TRL[0], "completion": [{"content": "x"}]}), "expected text or a list of messages"),
        (json.dumps({**TRL[0], "completion": [{"role": "tool", "content": "x"}]}), "no step is left"),
    ],
)
def test_what_cant_be_used_is_one_line_that_names_file_and_place(tmp_path, capsys, text, message):
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(RolloutError, match=rf"a\.jsonl.*{message}"):
        read_rollouts(path)
    assert cli.main(["compare", str(path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_binary_nonsense_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x00\xff\xfe\x80PAR")
    with pytest.raises(RolloutError, match=r"not UTF-8 text|not a Parquet file"):
        read_rollouts(tmp_path / name)


def test_the_command_reads_a_map_and_columns(tmp_path, capsys):
    path = lines(tmp_path / "a.jsonl", [{**record, "go": record["response"]} for record in VERL])
    command = [
        "compare",
        str(path),
        "--format",
        "verl-agent",
        "--columns",
        "action=go,group=uid+is",
        "--estimators",
        "grpo",
    ]
    assert cli.main(command) == 1
    assert "no field 'is' for column 'group'" in capsys.readouterr().err
    command[5] = "action=go,group=uid+uid"
    assert cli.main(command) == 0
    assert "4 steps, 2 trajectories (1 solved), 1 groups" in capsys.readouterr().out
