"""Question files: the shipped samples, FlashRAG's JSON Lines, the published Parquet, counts, what is missing."""

from __future__ import annotations

import dataclasses
import json

import pandas as pd
import pytest

from benchmarks.search_qa import make, questions
from benchmarks.search_qa.questions import DATA_SETS, DataError

LICENCES = ("CC BY-SA 4.0", "Apache-2.0")


def flashrag(n: int, start: int = 0) -> list[dict]:
    """Rows as FlashRAG writes them; the metadata differ from row to row."""
    return [
        {"id": f"test_{i}", "question": f"who is {i}", "golden_answers": [f"a{i}"],
         "metadata": {"x": [i]} if i % 2 else {}}
        for i in range(start, start + n)
    ]  # fmt: skip


def published(n: int, source: str, start: int = 0) -> list[dict]:
    """Rows of nq_hotpotqa_train."""
    return [
        {
            "id": f"train_{i}", "question": f"who is {i}?", "golden_answers": [f"a{i}", "b"], "data_source": source,
            "prompt": [{"role": "user", "content": "..."}], "ability": "fact-reasoning",
            "reward_model": {"style": "rule", "ground_truth": {"target": [f"a{i}", "b"]}},
            "extra_info": {"split": "train", "index": i},
        }
        for i in range(start, start + n)
    ]  # fmt: skip


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def small_sets(monkeypatch):
    """The seven sets with a few rows each."""
    sets = tuple(dataclasses.replace(known, rows=3 + place) for place, known in enumerate(DATA_SETS))
    monkeypatch.setattr(questions, "DATA_SETS", sets)
    monkeypatch.setattr(questions, "TRAIN_ROWS", {"nq": 4, "hotpotqa": 3})
    return sets


def test_seven_sets_in_the_published_order():
    assert [known.name for known in DATA_SETS] == [
        "nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"
    ]  # fmt: skip
    assert sum(known.rows for known in DATA_SETS) == 51_713
    assert sum(questions.TRAIN_ROWS.values()) == 169_615


# --- shipped ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rows", "other"), [("hotpotqa-mini", 100, 1173), ("2wiki-mini", 1173, 100)])
def test_shipped_samples_are_split_by_id(name, rows, other):
    benchmark = make(data=name)
    train, held_out, foreign = (benchmark.task_set(split) for split in ("train", "eval", "out_of_domain"))
    assert len(train) == round(0.7 * rows)
    assert len(train) + len(held_out) == rows
    assert len(foreign) == other
    ids = [task.id for tasks in (train, held_out, foreign) for task in tasks.tasks]
    assert len(set(ids)) == len(ids)
    assert train.hash == make(data=name, profile="verl_agent").task_set("train").hash
    assert {task.kind for task in foreign.tasks} != {task.kind for task in train.tasks}


def test_licences_lie_beside_the_data():
    notice = questions.shipped_path("NOTICE.md").read_text()
    for name in ("hotpotqa-mini", "2wiki-mini"):
        for part in ("questions", "corpus"):
            assert f"{name}.{part}.jsonl.gz" in notice
    assert all(licence in notice for licence in LICENCES)
    assert not list(questions.shipped_path(".").glob("*trivia*"))


def test_slices_of_a_split():
    benchmark = make()
    whole = benchmark.task_set("train")
    assert benchmark.task_set("train", 5, 10).tasks == whole.tasks[10:15]
    with pytest.raises(ValueError, match="has 70 questions: 71 after offset 0"):
        benchmark.task_set("train", 71)
    with pytest.raises(ValueError, match=r"unknown split 'test' .*known: train, eval, out_of_domain"):
        benchmark.task_set("test")


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_folder_with_all_sets(tmp_path, small_sets):
    for known in small_sets:
        write(tmp_path / (known.aliases or (known.name,))[0] / f"{known.split}.jsonl", flashrag(known.rows))
    found = questions.read_folder(tmp_path)
    assert found.missing == {}
    assert [q.source for q in found.questions] == [known.name for known in small_sets for _ in range(known.rows)]
    assert found.questions[0].text == "who is 0?"  # the question mark is added
    assert found.questions[0].golds == ("a0",)


def test_missing_sets_are_named_with_the_reason(tmp_path, small_sets):
    write(tmp_path / "nq.jsonl", flashrag(3))
    found = questions.read_folder(tmp_path)
    assert set(found.missing) == {known.name for known in small_sets} - {"nq"}
    assert str(tmp_path / "musique" / "dev.jsonl") in found.missing["musique"]


def test_another_number_of_rows_is_refused_unless_wanted(tmp_path, small_sets):
    write(tmp_path / "nq" / "test.jsonl", flashrag(2))
    with pytest.raises(DataError, match=r"2 questions of nq, the published test split has 3; .*check_counts=false"):
        questions.read_folder(tmp_path)
    assert len(questions.read_folder(tmp_path, check_counts=False).questions) == 2


def test_the_published_parquet(tmp_path, small_sets):
    rows = published(4, "nq") + published(3, "hotpotqa", start=4)
    pd.DataFrame(rows).to_parquet(tmp_path / "train.parquet")
    found = questions.read_training(tmp_path)
    assert [q.source for q in found] == ["nq"] * 4 + ["hotpotqa"] * 3
    assert found[1].golds == ("a1", "b")
    pd.DataFrame(rows[:-1]).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(DataError, match="6 training questions, nq_hotpotqa_train has 7"):
        questions.read_training(tmp_path)


def test_evaluation_in_one_parquet(tmp_path, small_sets):
    rows = [row for known in small_sets[:2] for row in published(known.rows, known.name)]
    pd.DataFrame(rows).to_parquet(tmp_path / "test.parquet")
    found = questions.read_folder(tmp_path)
    assert len(found.questions) == 3 + 4
    assert "no rows in" in found.missing["bamboogle"]


def test_answers_of_the_reward_model_where_the_row_has_no_others():
    row = {
        "question": "q?",
        "reward_model": {"ground_truth": {"target": "one"}},
        "extra_info": {"split": "dev", "index": 3},
    }
    question = questions.question_of(row, "f, row 0", "2wiki")
    assert (question.id, question.golds, question.source) == ("2wikimultihopqa/dev_3", ("one",), "2wikimultihopqa")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1, "question": "  ", "golden_answers": ["a"]}, "line 2: the question is empty"),
        ({"id": 1, "question": "q", "golden_answers": []}, "line 2: no golden_answers"),
        ({"id": 1, "question": "q"}, "line 2: no golden_answers"),
        ({"id": 1, "question": "q", "golden_answers": {"a": 1}}, "line 2: no golden_answers"),
        ({"id": 1, "question": "q", "golden_answers": ["a", None]}, "line 2: no golden_answers"),
        ({"id": 1, "question": "q", "reward_model": "a"}, "line 2: no golden_answers"),
        ({"id": 1, "question": ["q"], "golden_answers": ["a"]}, "line 2: the question is empty"),
        (["q", "a"], "line 2: not a JSON object"),
        ({"id": "test_0", "question": "q", "golden_answers": ["a"]}, "question 'nq/test_0' comes twice"),
    ],
)
def test_broken_rows_are_named(tmp_path, row, message):
    write(tmp_path / "nq.jsonl", [flashrag(1)[0], row])
    with pytest.raises(DataError, match=message):
        questions.read_folder(tmp_path, check_counts=False)


def test_answers_stay_as_they_are_written(tmp_path):
    """No reader of tables takes dates for times, or whole numbers for others."""
    rows = [
        {"id": i, "question": "q", "golden_answers": golds} for i, golds in enumerate([["1990-05-01"], [1990, 0.5]])
    ]
    write(tmp_path / "nq.jsonl", [*rows[:1], {**rows[1], "metadata": "other"}])
    assert [q.golds for q in questions.read_questions(tmp_path / "nq.jsonl")] == [("1990-05-01",), ("1990", "0.5")]


def test_the_sets_of_files_that_verl_wrote(tmp_path, small_sets):
    rows = [row for known in small_sets for row in published(known.rows, f"searchR1_{known.name}")]
    pd.DataFrame(rows).to_parquet(tmp_path / "test.parquet")
    found = questions.read_folder(tmp_path)
    assert (found.missing, found.questions[0].id) == ({}, "nq/train_0")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'\n{"id": 1, "question"\n', r"nq\.jsonl, line 2: not JSON"),
        (b"\xff\xfe{}", r"nq\.jsonl: .*can't decode"),
        (b"", "none of the seven sets found"),
    ],
)
def test_files_that_are_no_question_files(tmp_path, content, message):
    (tmp_path / "nq.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        questions.read_folder(tmp_path, check_counts=False)


def test_folders_without_question_files(tmp_path):
    with pytest.raises(DataError, match=r"does not exist; set benchmark\.options\.data_dir"):
        questions.read_folder(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="none of the seven sets found"):
        questions.read_folder(tmp_path / "empty")
    with pytest.raises(DataError, match="no training questions"):
        questions.read_training(tmp_path / "empty")
    with pytest.raises(DataError, match="unknown data set 'squad'"):
        questions.data_set("squad")


def test_the_benchmark_over_files(tmp_path, small_sets):
    write(tmp_path / "nq.jsonl", flashrag(3))
    write(tmp_path / "corpus.jsonl", [{"id": "1", "contents": '"T"\ntext'}])
    benchmark = make(data="files", data_dir=str(tmp_path), corpus=str(tmp_path / "corpus.jsonl"))
    assert len(benchmark.task_set("eval")) == 3  # without reading a training file
    record = benchmark.record()
    assert set(record["missing"]) == {known.name for known in small_sets} - {"nq"}
    assert record["retrieval"]["passages"] == 1
    json.dumps(record, allow_nan=False)
    with pytest.raises(DataError, match="no training questions"):
        benchmark.task_set("train")
