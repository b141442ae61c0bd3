"""What can be chosen about the Search-QA benchmark."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.search_qa.profiles import PROFILES

SAMPLES = ("hotpotqa-mini", "2wiki-mini")
DATA = ("search-worlds", *SAMPLES, "files")
RETRIEVERS = ("bm25", "http", "dense")
_VERSIONS = {"search-worlds": "search-worlds-v1", "hotpotqa-mini": "hotpotqa-mini-v1", "2wiki-mini": "2wiki-mini-v1"}


@dataclass(frozen=True)
class Options:
    """Options of the benchmark; `make(**options)` takes them by name.

    data               "search-worlds" (made world), "hotpotqa-mini", "2wiki-mini" (shipped samples) or "files"
    data_dir           folder of the seven public sets (data="files"); see `questions.read_folder`
    check_counts       refuse a public set whose number of rows is not the published one
    profile            "strict", "search_r1" or "verl_agent"; see `profiles`
    generations        replies an episode may have; the protocol's horizon. One more than searches in every profile:
                       what a last search finds could not be read
    history            past steps that a prompt shows
    top_k              passages a search
    retriever          "bm25" (in process), "http" (a server) or "dense" (faiss and an encoder)
    corpus             JSON Lines of passages; "" is the data's own
    index, encoder     a faiss file ("" builds a flat one in memory); a folder, a hub name, or "minilm"
    index_mmap         leave the faiss index on disk and map it
    url                servers, separated by commas; "" reads the environment variable CREDITBENCH_RETRIEVAL_URL, which
                       keeps addresses out of a run's identity
    dialect            "queries" or "query", the field the server reads; "" is the profile's
    connect_timeout, read_timeout   seconds
    attempts           tries of a request, with growing pauses, before the run stops
    passage_limit      words and marks of a passage that are shown (strict); 0 shows all
    observation_limit  tokens of an observation (search_r1); 0 shows all
    tokenizer          whose tokens those are; null counts words and marks
    legacy_empty       null is the profile's rule for golds that normalize to nothing
    format_reward      Search-R1 v0.3's shaped reward (profile search_r1)
    success_reward     reward of a right answer; every other step has 0

    Raises ValueError for a value out of range or options that do not go together.
    """

    data: str = "hotpotqa-mini"
    data_dir: str = ""
    check_counts: bool = True
    profile: str = "strict"
    generations: int = 4
    history: int = 4
    top_k: int = 3
    retriever: str = "bm25"
    corpus: str = ""
    index: str = ""
    encoder: str = "minilm"
    index_mmap: bool = False
    url: str = ""
    dialect: str = ""
    connect_timeout: float = 5.0
    read_timeout: float = 60.0
    attempts: int = 10
    passage_limit: int = 250
    observation_limit: int = 500
    tokenizer: str | None = None
    legacy_empty: bool | None = None
    format_reward: bool = False
    success_reward: float = 1.0

    def __post_init__(self) -> None:
        self._check_words()
        self._check_numbers()
        if self.format_reward and self.profile != "search_r1":
            raise ValueError("search_qa option format_reward=true needs profile=search_r1, which keeps whole replies")
        if self.data == "files" and not self.data_dir:
            raise ValueError("search_qa option data=files needs data_dir, the folder of the question files")
        if self.data == "files" and self.retriever != "http" and not self.corpus:
            raise ValueError("search_qa option data=files needs corpus=FILE, or retriever=http and url=http://...")

    def _check_words(self) -> None:
        dialects = ("", "queries", "query")
        for name, known in (
            ("data", DATA), ("profile", tuple(PROFILES)), ("retriever", RETRIEVERS), ("dialect", dialects)
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise ValueError(f"search_qa option {name}={getattr(self, name)!r}{_hint(getattr(self, name), known)}")
        for name in ("check_counts", "index_mmap", "format_reward"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"search_qa option {name}={getattr(self, name)!r}: needs true or false")

    def _check_numbers(self) -> None:
        leasts = {"generations": 1, "history": 0, "top_k": 1, "attempts": 1, "passage_limit": 0, "observation_limit": 0}
        for name, least in leasts.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"search_qa option {name}={value!r}: needs a whole number, {least} or more")
        for name in ("connect_timeout", "read_timeout", "success_reward"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                raise ValueError(f"search_qa option {name}={value!r}: needs a number above 0")

    @property
    def label(self) -> str:
        """Names data and profile; results of different labels are never comparable."""
        return f"search_qa-{self.profile}-{_VERSIONS.get(self.data, self.data)}"


def parse_options(**given: Any) -> Options:
    """Options by name. ValueError names an unknown option and the nearest known one."""
    known = [field.name for field in dataclasses.fields(Options)]
    for name in given:
        if name not in known:
            raise ValueError(f"unknown search_qa option {name!r}{_hint(name, known)}")
    return Options(**given)


def _hint(word: Any, known: Iterable[str]) -> str:
    shown = [name for name in known if name]
    near = difflib.get_close_matches(str(word), shown, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    return f"{guess} (known: {', '.join(shown)})"
