"""Questions: the shipped samples, and files of the seven public sets in FlashRAG's JSON Lines or as Parquet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks.search_qa.retrieval.corpus import load_corpus


@dataclass(frozen=True)
class Question:
    """One question; `source` is its data set, the kind that tables report."""

    id: str
    text: str
    golds: tuple[str, ...]
    source: str

    @property
    def digest(self) -> str:
        """16 hex digits over the content."""
        record = json.dumps([self.text, self.golds, self.source])
        return hashlib.sha256(record.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class DataSet:
    """One of the seven sets: FlashRAG's split that is evaluated, its number of rows, hops."""

    name: str
    title: str
    split: str
    rows: int
    multi_hop: bool
    in_domain: bool
    aliases: tuple[str, ...] = ()


# Order and counts of the published evaluation: 51,713 questions (Search-R1, arXiv 2503.09516, and FlashRAG's files).
DATA_SETS = (
    DataSet("nq", "NQ", "test", 3_610, multi_hop=False, in_domain=True),
    DataSet("triviaqa", "TriviaQA", "test", 11_313, multi_hop=False, in_domain=False),
    DataSet("popqa", "PopQA", "test", 14_267, multi_hop=False, in_domain=False),
    DataSet("hotpotqa", "HotpotQA", "dev", 7_405, multi_hop=True, in_domain=True),
    DataSet("2wikimultihopqa", "2Wiki", "dev", 12_576, multi_hop=True, in_domain=False, aliases=("2wiki",)),
    DataSet("musique", "MuSiQue", "dev", 2_417, multi_hop=True, in_domain=False),
    DataSet("bamboogle", "Bamboogle", "test", 125, multi_hop=True, in_domain=False),
)
TRAIN_ROWS = {"nq": 79_168, "hotpotqa": 90_447}  # nq_hotpotqa_train: 169,615
_BY_NAME = {name: known for known in DATA_SETS for name in (known.name, *known.aliases)}
_VERL = "searchR1_"  # before the set's name in files that verl's preparation wrote


class DataError(ValueError):
    """Question files that can't be used; one line that names the file, the row and the way out."""


def data_set(name: str) -> DataSet:
    """The set of a name or alias; DataError names an unknown one."""
    if name.lower() not in _BY_NAME:
        raise DataError(f"unknown data set {name!r} (known: {', '.join(known.name for known in DATA_SETS)})")
    return _BY_NAME[name.lower()]


# --- shipped samples --------------------------------------------------------------------------------------------------


def shipped_path(name: str) -> Path:
    """A file of the package's data."""
    return Path(str(resources.files("benchmarks.search_qa"))) / "data" / name


def shipped(name: str) -> tuple[Question, ...]:
    """All questions of "hotpotqa-mini" or "2wiki-mini", by id."""
    import gzip

    path = shipped_path(f"{name}.questions.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    return tuple(
        sorted((question_of(row, f"{path.name}, line {i}") for i, row in enumerate(rows, start=1)), key=lambda q: q.id)
    )


def split_by_id(questions: Iterable[Question], train_share: float) -> dict[str, tuple[Question, ...]]:
    """ "train" and "eval" by a hash of the id: the same for everybody, whatever else is in the file."""
    ordered = sorted(questions, key=lambda q: hashlib.sha256(q.id.encode()).hexdigest())
    border = round(train_share * len(ordered))
    return {"train": tuple(ordered[:border]), "eval": tuple(ordered[border:])}


# --- files ------------------------------------------------------------------------------------------------------------


def question_of(row: Any, where: str, source: str = "") -> Question:
    """A question from FlashRAG's row or one of the published Parquet files. DataError, naming `where`, otherwise.

    White space around it is cut and a question mark added where there is none, as the published preparation does. A
    row without an id is named by its place, the last word of `where`.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: not a JSON object")
    text, golds = _text(row), _golds(row)
    if not text:
        raise DataError(f"{where}: the question is empty")
    if not golds or not all(_is_answer(gold) for gold in golds):
        raise DataError(f"{where}: no golden_answers (a list of texts)")
    name = str(source or row.get("data_source") or "").removeprefix(_VERL)
    known = _BY_NAME.get(name.lower())
    identity = row.get("id")
    if identity is None:
        extra = _part(row, "extra_info")
        identity = f"{extra.get('split', 'row')}_{extra.get('index', where.rpartition(' ')[2])}"
    kind = known.name if known else name
    return Question(f"{kind or 'qa'}/{identity}", text, tuple(map(str, golds)), kind)


def _text(row: Mapping[str, Any]) -> str:
    text = row.get("question")
    if text is None:
        text = _part(row, "env_kwargs").get("question")
    text = text.strip() if isinstance(text, str) else ""
    return text if not text or text.endswith("?") else text + "?"


def _golds(row: Mapping[str, Any]) -> list[Any]:
    found = row.get("golden_answers")
    if found is None:
        found = _part(_part(row, "reward_model"), "ground_truth").get("target")
    return found if isinstance(found, list) else [found]


def _part(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = row.get(name)
    return part if isinstance(part, Mapping) else {}


def _is_answer(gold: Any) -> bool:
    return isinstance(gold, (str, int, float)) and not isinstance(gold, bool)


def read_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """(place, row) of a .parquet file or one of JSON Lines, through Hugging Face `datasets`, streamed: nothing is
    cached.

    Lines are read as text and each by itself: a reader of tables takes "1990-05-01" for a time, and 1990 for 1990.0
    where the next row has 0.5.
    """
    if not path.is_file():
        raise DataError(f"question file {path} does not exist")
    if path.suffix == ".parquet":
        yield from ((f"row {number}", row) for number, row in enumerate(_streamed("parquet", path), start=1))
        return
    for number, line in enumerate(_streamed("text", path), start=1):
        if line["text"].strip():
            try:
                row = json.loads(line["text"])
            except ValueError:
                raise DataError(f"{path}, line {number}: not JSON") from None
            yield f"line {number}", row


def _streamed(kind: str, path: Path) -> Iterator[dict[str, Any]]:
    import datasets

    try:
        yield from datasets.load_dataset(kind, data_files=str(path), split="train", streaming=True)
    except (datasets.exceptions.DatasetGenerationError, ValueError, TypeError) as error:
        raise DataError(f"{path}: {' '.join(str(error).split())[:200]}") from error


def read_questions(path: Path, source: str = "") -> tuple[Question, ...]:
    """The questions of a file, of the named set or of the set each row names. DataError for an id that comes twice."""
    questions = tuple(question_of(row, f"{path}, {place}", source) for place, row in read_rows(path))
    if len({q.id for q in questions}) < len(questions):
        seen: set[str] = set()
        twice = next(q.id for q in questions if q.id in seen or seen.add(q.id))  # type: ignore[func-returns-value]
        raise DataError(f"{path}: question {twice!r} comes twice")
    return questions


@dataclass(frozen=True)
class Files:
    """The questions found in a folder, and the sets that are missing with the reason for each."""

    questions: tuple[Question, ...]
    missing: Mapping[str, str]


def read_folder(folder: Path, check_counts: bool = True) -> Files:
    """The evaluation questions of a folder: `<set>/<split>.jsonl` or `<set>.jsonl` for each of the seven sets, else
    one `test.parquet` with all of them. Sets without a file are listed in `missing`.

    DataError when a set has another number of rows than the published one (unless `check_counts` is off), or when
    nothing is found.
    """
    if not folder.is_dir():
        raise DataError(f"data folder {folder} does not exist; set benchmark.options.data_dir")
    pooled = folder / "test.parquet"
    rows = read_questions(pooled) if pooled.is_file() else ()
    questions: list[Question] = []
    missing: dict[str, str] = {}
    for known in DATA_SETS:
        found, looked = _of_set(folder, known, rows)
        if not found:
            missing[known.name] = f"no rows in {looked}"
        elif check_counts and len(found) != known.rows:
            raise DataError(
                f"{looked}: {len(found)} questions of {known.name}, the published {known.split} split has "
                f"{known.rows}; set benchmark.options.check_counts=false to use it as it is"
            )
        questions += found
    if not questions:
        raise DataError(f"{folder}: none of the seven sets found (e.g. {folder / 'nq' / 'test.jsonl'})")
    return Files(tuple(questions), missing)


def _of_set(folder: Path, known: DataSet, pooled: tuple[Question, ...]) -> tuple[tuple[Question, ...], str]:
    for name in (known.name, *known.aliases):
        for path in (folder / name / f"{known.split}.jsonl", folder / f"{name}.jsonl"):
            if path.is_file():
                return read_questions(path, known.name), str(path)
    if pooled:
        return tuple(q for q in pooled if q.source == known.name), str(folder / "test.parquet")
    return (), str(folder / known.name / f"{known.split}.jsonl")


def read_training(folder: Path, check_counts: bool = True) -> tuple[Question, ...]:
    """The training questions of a folder: `train.parquet` (nq_hotpotqa_train) or `nq/` and `hotpotqa/train.jsonl`."""
    path = folder / "train.parquet"
    if path.is_file():
        questions = read_questions(path)
    else:
        parts = [(name, folder / name / "train.jsonl") for name in TRAIN_ROWS]
        questions = tuple(q for name, part in parts if part.is_file() for q in read_questions(part, name))
    if not questions:
        raise DataError(f"{folder}: no training questions (train.parquet, or nq/train.jsonl and hotpotqa/train.jsonl)")
    expected = sum(TRAIN_ROWS.values())
    if check_counts and len(questions) != expected:
        raise DataError(
            f"{folder}: {len(questions)} training questions, nq_hotpotqa_train has {expected}; set "
            "benchmark.options.check_counts=false to use them as they are"
        )
    return questions


__all__ = ["DATA_SETS", "DataError", "DataSet", "Files", "Question", "load_corpus", "shipped", "split_by_id"]
