"""Search-QA as a benchmark: what the trainer sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.base import EnvironmentPool, ParsedAction, StepView, Task, TaskSet
from benchmarks.search_qa import expert, notes, questions, worlds
from benchmarks.search_qa.episode import Rules
from benchmarks.search_qa.limits import Cutter
from benchmarks.search_qa.options import SAMPLES, Options
from benchmarks.search_qa.pool import SearchPool
from benchmarks.search_qa.profiles import PROFILES
from benchmarks.search_qa.questions import DATA_SETS, Question
from benchmarks.search_qa.retrieval import engines
from benchmarks.search_qa.retrieval.base import Retriever
from benchmarks.search_qa.retrieval.http_client import HttpEngine, Server

TRAIN_SHARE = 0.7  # of a shipped sample


class SearchQA:
    """Questions answered with a search engine (Search-R1, arXiv 2503.09516; GiGPO, arXiv 2505.10978); a `Benchmark`.

    Success is exact match. Splits: "train" and "eval"; the shipped samples have the other sample as "out_of_domain".
    """

    name = "search_qa"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.label = options.label
        self.success_reward = options.success_reward
        self.profile = PROFILES[options.profile]
        self.cuts_left = self.profile.cuts_left
        self.kinds = tuple(worlds.KINDS) if self._made else tuple(known.name for known in DATA_SETS)

    @property
    def _made(self) -> bool:
        return self.options.data == "search-worlds"

    # ------------------------------------------------------------------------------------------------ tasks
    def task_set(self, split: str, count: int | None = None, offset: int = 0) -> TaskSet:
        """`count` questions after `offset` of a split, in its canonical order. ValueError when unknown or too short."""
        found = self._split(split)
        count = len(found) - offset if count is None else count
        if offset < 0 or count < 1 or offset + count > len(found):
            raise ValueError(
                f"{self.label}/{split} has {len(found)} questions: {count} after offset {offset} are not among them"
            )
        chosen = found[offset : offset + count]
        return TaskSet(self.label, split, tuple(map(_task, chosen)), tuple(question.digest for question in chosen))

    def _split(self, split: str) -> tuple[Question, ...]:
        splits: Mapping[str, tuple[Question, ...]] = self._files if self.options.data == "files" else self._shipped
        if split not in tuple(splits):  # not `in splits`, which would read the files
            raise ValueError(f"unknown split {split!r} of {self.label} (known: {', '.join(splits)})")
        return splits[split]

    @cached_property
    def _shipped(self) -> Mapping[str, tuple[Question, ...]]:
        if self._made:
            return worlds.world().questions
        (other,) = (name for name in SAMPLES if name != self.options.data)
        mine = questions.split_by_id(questions.shipped(self.options.data), TRAIN_SHARE)
        return {**mine, "out_of_domain": questions.shipped(other)}

    @cached_property
    def _files(self) -> _Folder:
        return _Folder(self.options)

    # ------------------------------------------------------------------------------------------------ environment
    def pool(self, slots: int, workers: int = 0) -> EnvironmentPool:
        """Slots stepped in this process; `workers` change nothing, since a turn is one batch of searches."""
        return SearchPool(self.rules, self.retriever, slots)

    @cached_property
    def rules(self) -> Rules:
        """What all episodes share."""
        options, profile = self.options, self.profile
        limits = {"strict": Cutter(options.passage_limit),
                  "search_r1": Cutter(options.observation_limit, options.tokenizer or "")}  # fmt: skip
        return Rules(
            profile=profile,
            generations=options.generations,
            top_k=options.top_k,
            cutter=limits.get(profile.name, Cutter(0)),
            legacy_empty=profile.legacy_empty if options.legacy_empty is None else options.legacy_empty,
            format_reward=options.format_reward,
            success_reward=options.success_reward,
            world=self._made,
        )

    @cached_property
    def retriever(self) -> Retriever:
        """The engine with the memory of its answers, shared by all pools."""
        return Retriever(engines.build(self.options, self.profile.dialect), self.options.top_k)

    @property
    def fingerprint(self) -> str:
        """Of the retrieval engine and its passages: what a run must find again when it goes on."""
        return self.retriever.engine.fingerprint

    def check(self, here: bool = True) -> None:
        """RetrievalError, ValueError or OSError when retrieval would fail once the run has begun. Without `here` the
        run will be on another machine: nothing is said of this one's memory, nor of what it can reach."""
        if self.options.retriever == "http":
            server = engines.server(self.options, self.profile.dialect)
            if here:
                self._probe(server)
        elif self.options.retriever == "dense":
            self._check_dense(here)
        if self.options.corpus and not Path(self.options.corpus).expanduser().is_file():
            raise FileNotFoundError(f"corpus file {self.options.corpus} does not exist")

    def _probe(self, server: Server) -> None:
        engine = HttpEngine(server)
        try:
            engine.probe(self.options.top_k)
        finally:
            engine.close()

    def _check_dense(self, here: bool) -> None:
        from benchmarks.search_qa.retrieval.dense import check_memory

        index = Path(self.options.index).expanduser()
        if self.options.index and (here or not index.is_file()):
            check_memory(index, self.options.index_mmap)
        self.check_embed()

    def record(self) -> dict[str, Any]:
        """Data, protocol and retrieval engine, strict JSON."""
        options, limit = self.options, self.rules.cutter
        return {
            "label": self.label,
            "profile": options.profile,
            "generations": options.generations,
            "legacy_empty": self.rules.legacy_empty,
            "format_reward": options.format_reward,
            "limit": {"tokens": limit.limit, "tokenizer": limit.tokenizer or "words and marks"},
            "retrieval": self._retrieval(),
            "missing": dict(self._files.missing) if self.options.data == "files" else {},
        }

    def _retrieval(self) -> dict[str, Any]:
        return {**self.retriever.engine.record(), "top_k": self.options.top_k}

    # ------------------------------------------------------------------------------------------------ text
    def messages(self, view: StepView) -> list[dict[str, str]]:
        """The prompt of one step for a chat model, as the profile has it."""
        return self.profile.messages(view)

    def parse(self, reply: str) -> ParsedAction:
        """Read a chat model's reply by the profile's rules."""
        return self.profile.parse(reply)

    def reply(self, view: StepView, action: str) -> str:
        """An expert's decision in words, for worked examples."""
        return expert.reply(view, action)

    def compact(self, view: StepView) -> str:
        """The prompt of one step in the closed vocabulary of search-worlds, for the tiny policy."""
        return notes.compact(view)

    def lexicon(self) -> tuple[str, ...]:
        """Every word that `compact` and admissible commands can hold. ValueError but for search-worlds: a policy with
        a closed vocabulary cannot write open questions."""
        if not self._made:
            raise ValueError(
                f"data={self.options.data} needs a language model (model=smollm2, model=hub); the tiny policy plays "
                "data=search-worlds"
            )
        return notes.lexicon()

    def words(self, text: str) -> list[str]:
        """Split `compact` prompts and commands into words of the lexicon; " ".join undoes it."""
        return notes.words(text)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors [texts, dimension] of states, for the state key `embedding`, by the option `encoder`."""
        return self._encoder(texts)

    def check_embed(self) -> None:
        """ValueError when the encoder of `embed` is not at hand; loads nothing."""
        from benchmarks.search_qa.retrieval.encoders import check_encoder

        check_encoder(self.options.encoder)

    @cached_property
    def _encoder(self) -> Any:
        from benchmarks.search_qa.retrieval.encoders import Encoder

        return Encoder(self.options.encoder)

    def demonstrations(self, tasks: Sequence[Task], runs: int, seed: int) -> Iterator[tuple[StepView, str]]:
        """An expert's decisions; both are deterministic, so `runs` repeat themselves. That of search-worlds reasons
        from what it reads, that of open questions knows the answers (`expert`)."""
        pool = self.pool(1)
        if not self._made:
            yield from expert.demonstrations(pool, tasks, runs, self.options.generations)
            return
        for task in tasks:
            for _ in range(runs):
                yield from self._demonstration(pool, task)

    def _demonstration(self, pool: EnvironmentPool, task: Task) -> Iterator[tuple[StepView, str]]:
        (observation,) = pool.reset([task])
        history: list[tuple[str, str]] = []
        for step in range(self.options.generations):
            command = notes.expert(observation)
            yield StepView(observation, step, self.options.generations, tuple(history)), command
            history.append((observation.text, command))
            (result,) = pool.step([(0, command)])
            observation = result.observation
            if result.done:
                return


def _task(question: Question) -> Task:
    payload = {"question": question.text, "golden_answers": list(question.golds), "data_source": question.source}
    return Task(question.id, question.source, payload)


class _Folder(Mapping[str, tuple[Question, ...]]):
    """Splits of a folder, each read when it is first asked for: evaluation needs no training file."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._folder = Path(options.data_dir).expanduser()
        self._read: dict[str, tuple[Question, ...]] = {}
        self._missing: Mapping[str, str] = {}

    def __getitem__(self, split: str) -> tuple[Question, ...]:
        if split not in self._read:
            if split == "train":
                self._read[split] = questions.read_training(self._folder, self._options.check_counts)
            else:
                found = questions.read_folder(self._folder, self._options.check_counts)
                self._read[split], self._missing = found.questions, found.missing
        return self._read[split]

    @property
    def missing(self) -> Mapping[str, str]:
        """Sets without a file, with the reason."""
        self["eval"]
        return self._missing

    def __iter__(self) -> Iterator[str]:
        return iter(("train", "eval"))

    def __len__(self) -> int:
        return 2
