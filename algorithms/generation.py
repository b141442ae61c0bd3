"""How replies are generated, behind one interface: requests go in one by one, finished replies come out.

`BatchEngine` answers everything that waits in one call (transformers, or vLLM where all processes must call together).
Engines with continuous batching (`vllm_engine`) take a new request at any time, so that an episode asks for its next
reply as soon as its environment has answered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

# prompts [n] of token ids -> (replies [n] of token ids, log-probabilities of the sampled tokens [n] or None)
Generate = Callable[[list[list[int]]], tuple[list[list[int]], list[list[float]] | None]]


@dataclass(frozen=True)
class Reply:
    """The reply to request `key`: token ids, and log-probabilities of the sampled tokens where the engine has them."""

    key: int
    ids: list[int]
    logps: list[float] | None


class Engine(Protocol):
    """Generates replies to requests.

    lockstep  every `advance` answers all requests, and all processes of a run must call it equally often
    """

    lockstep: bool

    @property
    def waiting(self) -> int:
        """Requests without a reply."""
        ...

    def submit(self, key: int, prompt: list[int], seed: int) -> None:
        """A request; `seed` makes its sampling its own, where the engine can, whatever it is batched with."""
        ...

    def advance(self) -> list[Reply]:
        """Work on what waits; the replies that got finished, possibly none."""
        ...


class BatchEngine:
    """All waiting requests in one call of `generate`, in the order they came; `seed` has no effect.

    A process with nothing to ask still joins: its last prompt is generated again and the reply dropped.
    """

    lockstep = True

    def __init__(self, generate: Generate):
        self._generate = generate
        self._keys: list[int] = []
        self._prompts: list[list[int]] = []
        self._filler: list[int] = []

    @property
    def waiting(self) -> int:
        """Requests without a reply."""
        return len(self._keys)

    def submit(self, key: int, prompt: list[int], seed: int) -> None:
        """Queue a request for the next call."""
        self._keys.append(key)
        self._prompts.append(prompt)

    def advance(self) -> list[Reply]:
        """The replies to everything that waits."""
        keys, prompts = self._keys, self._prompts
        self._keys, self._prompts = [], []
        self._filler = prompts[-1] if prompts else self._filler
        replies, logps = self._generate(prompts or [self._filler])
        return [Reply(key, list(replies[i]), None if logps is None else list(logps[i])) for i, key in enumerate(keys)]


def request_seed(*parts: str | int) -> int:
    """A seed of 63 bits of whatever names a request, the same on every machine and process."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
