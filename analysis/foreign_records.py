"""Records of other trainers as a rollout batch, by a map from their fields to our columns.

A map says

    rows            "steps": a line is a step (verl-agent); "trajectories": a line is a trajectory, its steps are chat
                    messages (TRL)
    columns         our column -> their field. A field may be a path (`extra.id`), alternatives (`action|response`, the
                    first that a line has), or a list whose values together are the id. Needed: group, trajectory (not
                    with `rows: trajectories`), state and action (steps), messages (trajectories). Optional: step,
                    next_state, valid, reward, success, score, task, prompt, keep
    success_reward  what a solved task pays (default 1)
    success_above   without `success`, a trajectory is solved when its `score`, or else the sum of its rewards, is
                    above this (default 0)

Lines of a trajectory may stand anywhere; without `step` they count in the order of the file. `keep` drops lines where
it is false, and equal lines of one `step` count once: verl-agent fills batches with copies. Without `next_state` a step
leads to the state of the next one. What these logs do not hold is the state after the last step: it becomes one of two
nodes, solved and not solved. Without `reward` the last step of a solved trajectory gets the success reward.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from algorithms import RolloutBatch, RolloutError

Field = str | list[str]
ENDS = {True: "(end: solved)", False: "(end: not solved)"}
_NEEDED = {"steps": ("group", "trajectory", "state", "action"), "trajectories": ("group", "messages")}
_OPTIONAL = ("trajectory", "step", "next_state", "valid", "reward", "success", "score", "task", "prompt", "keep")
_KNOWN = tuple(dict.fromkeys((*_NEEDED["steps"], "messages", *_OPTIONAL)))
_MISSING = object()


@dataclass(frozen=True)
class ColumnMap:
    """Where our columns are in another trainer's records, see the module."""

    columns: Mapping[str, Field]
    rows: str = "steps"
    success_reward: float = 1.0
    success_above: float = 0.0

    def __post_init__(self) -> None:
        if self.rows not in _NEEDED:
            raise RolloutError(f"column map: rows is {self.rows!r}; it must be one of {', '.join(_NEEDED)}")
        for name, source in self.columns.items():
            if name not in _KNOWN:
                raise RolloutError(f"column map: {name!r} is not a column; valid: {', '.join(_KNOWN)}")
            parts = source if isinstance(source, list) else [source]
            if not parts or not all(isinstance(part, str) and part for part in parts):
                raise RolloutError(f"column map: {name!r} must name a field, or a list of fields, not {source!r}")
        missing = [name for name in _NEEDED[self.rows] if name not in self.columns]
        if missing:
            raise RolloutError(f"column map: {missing[0]!r} is not mapped; rows: {self.rows} needs it")
        for name in ("success_reward", "success_above"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise RolloutError(f"column map: {name} is {value!r}; it must be a number")

    def with_columns(self, columns: Mapping[str, Field]) -> ColumnMap:
        """The map with some columns from elsewhere."""
        return replace(self, columns={**self.columns, **columns})


@dataclass
class _Step:
    """One step as read; what the record does not say is None."""

    group: str
    trajectory: str
    state: str
    action: str
    place: float
    next_state: str | None = None
    valid: bool = True
    reward: float | None = None
    success: bool | None = None
    score: float | None = None
    task: str | None = None


def to_batch(records: list[dict[str, Any]], mapping: ColumnMap) -> RolloutBatch:
    """Records of another trainer as a batch. `RolloutError` names the record (from 1) and the field."""
    read = _steps_of_line if mapping.rows == "steps" else _steps_of_trajectory
    trajectories: dict[tuple[str, str], list[_Step]] = defaultdict(list)
    for number, record in enumerate(records, start=1):
        for step in read(_Reader(record, number, mapping)):
            trajectories[step.group, step.trajectory].append(step)
    if not trajectories:
        raise RolloutError("no step is left; look at `keep` and at the messages")
    columns: dict[str, list[Any]] = defaultdict(list)
    for steps in trajectories.values():
        _add(columns, _in_order(steps), mapping)
    if None in columns["task"]:
        del columns["task"]
    return RolloutBatch.from_columns(success_reward=float(mapping.success_reward), **columns)


def _in_order(steps: list[_Step]) -> list[_Step]:
    """One trajectory's steps in time, copies of a step (which trainers make to fill a batch) taken once."""
    kept: list[_Step] = []
    for step in sorted(steps, key=lambda step: step.place):
        if kept and kept[-1].place == step.place:
            if kept[-1] == step:
                continue
            where = f"trajectory {step.trajectory!r} of group {step.group!r}"
            raise RolloutError(f"{where} has two different records of its step {step.place:g}; map `step`, or drop it")
        kept.append(step)
    return kept


def _add(columns: dict[str, list[Any]], steps: list[_Step], mapping: ColumnMap) -> None:
    """One trajectory's columns, with what the records leave open."""
    success = _outcome(steps, mapping)
    for place, step in enumerate(steps):
        last = place == len(steps) - 1
        following = ENDS[success] if last else steps[place + 1].state
        paid = float(mapping.success_reward) if last and success else 0.0
        values = {
            "group": step.group,
            "trajectory": step.trajectory,
            "step": place,
            "state": step.state,
            "action": step.action,
            "next_state": following if step.next_state is None else step.next_state,
            "valid": step.valid,
            "reward": paid if step.reward is None else step.reward,
            "success": success,
            "task": step.task,
        }
        for name, value in values.items():
            columns[name].append(value)


def _outcome(steps: list[_Step], mapping: ColumnMap) -> bool:
    """Solved when any line says so; without such a field by the score, without that by the rewards."""
    said = [step.success for step in steps if step.success is not None]
    if said:
        return any(said)
    scores = [step.score for step in steps if step.score is not None]
    if scores:
        return scores[-1] > mapping.success_above
    rewards = [step.reward for step in steps if step.reward is not None]
    if not rewards:
        where = f"trajectory {steps[0].trajectory!r} of group {steps[0].group!r}"
        raise RolloutError(f"{where} has neither success nor score nor reward; map one of them")
    return sum(rewards) > mapping.success_above


def _steps_of_line(reader: _Reader) -> Iterator[_Step]:
    if not reader.flag("keep", True):
        return
    step = reader.number("step")
    yield _Step(
        group=reader.identifier("group"),
        trajectory=reader.identifier("trajectory"),
        state=reader.text("state"),
        action=reader.text("action"),
        place=reader.line if step is None else step,
        next_state=reader.text("next_state") if reader.has("next_state") else None,
        valid=reader.flag("valid", True),
        reward=reader.number("reward"),
        success=reader.flag("success", None),
        score=reader.number("score"),
        task=reader.identifier("task") if reader.has("task") else None,
    )


def _steps_of_trajectory(reader: _Reader) -> Iterator[_Step]:
    if not reader.flag("keep", True):
        return
    group = reader.identifier("group")
    trajectory = reader.identifier("trajectory") if reader.has("trajectory") else str(reader.line)
    messages = reader.messages("messages")
    observed = "\n".join(text for _, text in reader.messages("prompt")) if reader.has("prompt") else ""
    pending = [observed] if observed else []
    turns: list[tuple[str, str]] = []
    for role, text in messages:
        if role == "assistant":
            turns.append(("\n".join(pending), text))
            pending = []
        else:
            pending.append(text)
    for place, (state, action) in enumerate(turns):
        yield _Step(
            group=group,
            trajectory=trajectory,
            state=state,
            action=action,
            place=place,
            next_state="\n".join(pending) if pending and place == len(turns) - 1 else None,
            success=reader.flag("success", None),
            score=reader.number("score"),
            task=reader.identifier("task") if reader.has("task") else None,
        )


@dataclass(frozen=True)
class _Reader:
    """One record through a column map."""

    record: Mapping[str, Any]
    line: int
    mapping: ColumnMap

    def has(self, name: str) -> bool:
        return name in self.mapping.columns and self._find(name) is not _MISSING

    def identifier(self, name: str) -> str:
        """An id as text; a list of fields gives the text of all its values."""
        source = self.mapping.columns[name]
        if not isinstance(source, list):
            return self._id(name, self._need(name))
        values = [self._path(part) for part in source]
        if _MISSING in values:
            absent = source[values.index(_MISSING)]
            raise RolloutError(f"record {self.line}: no field {absent!r} for column {name!r}{self._fields()}")
        return json.dumps(values, ensure_ascii=False, default=str)

    def text(self, name: str) -> str:
        value = self._need(name)
        if isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)

    def number(self, name: str) -> float | None:
        if not self.has(name):
            return None
        value = self._find(name)
        if isinstance(value, bool):
            return float(value)
        if not isinstance(value, (int, float)):
            raise self._wrong(name, value, "a number")
        return float(value)

    def flag(self, name: str, default: Any) -> Any:
        """True or False (0 and 1 as well); the default without such a field."""
        if not self.has(name):
            return default
        value = self._find(name)
        if value not in (True, False):  # 0, 1, 0.0 and 1.0 among them
            raise self._wrong(name, value, "true or false")
        return bool(value)

    def messages(self, name: str) -> list[tuple[str, str]]:
        """(role, text) of a chat; plain text is one message of the assistant (a prompt's: of the user)."""
        value = self._need(name)
        if isinstance(value, str):
            return [("user" if name == "prompt" else "assistant", value)]
        if not isinstance(value, list) or not all(
            isinstance(m, dict) and isinstance(m.get("role"), str) for m in value
        ):
            raise self._wrong(name, value, "text or a list of messages with a role")
        return [(message["role"], _message_text(message)) for message in value]

    def _need(self, name: str) -> Any:
        value = self._find(name)
        if value is _MISSING:
            source = self.mapping.columns[name]
            raise RolloutError(f"record {self.line}: no field {source!r} for column {name!r}{self._fields()}")
        return value

    def _find(self, name: str) -> Any:
        source = self.mapping.columns[name]
        if isinstance(source, list):
            return self.identifier(name)
        found = (self._path(part) for part in source.split("|"))
        return next((value for value in found if value is not _MISSING and value is not None), _MISSING)

    def _path(self, path: str) -> Any:
        if path in self.record:
            return self.record[path]
        value: Any = self.record
        for part in path.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return _MISSING
            value = value[part]
        return value

    def _id(self, name: str, value: Any) -> str:
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value)
        raise self._wrong(name, value, "text or a whole number")

    def _wrong(self, name: str, value: Any, wanted: str) -> RolloutError:
        source = self.mapping.columns[name]
        return RolloutError(
            f"record {self.line}, field {source!r} (column {name!r}): expected {wanted}, got {value!r:.60}"
        )

    def _fields(self) -> str:
        return f"; it has {', '.join(map(str, self.record))}"


def _message_text(message: Mapping[str, Any]) -> str:
    """What a message says, tool calls included."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else [p.get("text", "") for p in content or () if isinstance(p, dict)]
    for call in message.get("tool_calls") or ():
        function = call.get("function", call) if isinstance(call, dict) else {}
        parts.append(json.dumps({"name": function.get("name"), "arguments": function.get("arguments")}, sort_keys=True))
    return "\n".join(part for part in parts if part)
