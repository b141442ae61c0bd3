"""Large JSON files read element by element: memory is bounded by one chunk and one element."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

CHUNK = 1 << 22  # characters read at a time
LONGEST = 1 << 26  # characters of one element; a real product has some thousands
_SPACE = " \t\r\n"


class FormatError(ValueError):
    """A file that is cut off or is not JSON of the expected shape; the message names the file and the place."""


def array(path: Path) -> Iterator[Any]:
    """The elements of a JSON array."""
    with path.open(encoding="utf-8") as file:
        reader = _Reader(path, file)
        reader.expect("[")
        while reader.more("]"):
            yield reader.value()
        reader.finish()


def members(path: Path) -> Iterator[tuple[str, Any]]:
    """The (key, value) pairs of a JSON object."""
    with path.open(encoding="utf-8") as file:
        reader = _Reader(path, file)
        reader.expect("{")
        while reader.more("}"):
            key = reader.value()
            reader.expect(":")
            yield key, reader.value()
        reader.finish()


def opening(path: Path) -> str:
    """The first character that is not white space; "" for an empty file."""
    try:
        with path.open(encoding="utf-8") as file:
            while text := file.read(4096):
                if text.strip(_SPACE):
                    return text.lstrip(_SPACE)[0]
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not a UTF-8 text, so not a WebShop file ({error.reason})") from None
    return ""


class _Reader:
    def __init__(self, path: Path, file: TextIO) -> None:
        self._path, self._file = path, file
        self._text, self._at, self._before = "", 0, 0
        self._fresh = True  # nothing read yet of the list: no comma is due
        self._decoder = json.JSONDecoder()

    def expect(self, sign: str) -> None:
        found = self._peek()
        if found != sign:
            raise self._error(f"expected {sign!r}, found {found!r}" if found else f"ends where {sign!r} should stand")
        self._at += 1

    def more(self, closing: str) -> bool:
        """Whether another element follows; swallows the comma, or the closing bracket."""
        if self._peek() == closing:
            self._at += 1
            return False
        if not self._fresh:
            self.expect(",")
        self._fresh = False
        return True

    def value(self) -> Any:
        if not self._peek():
            raise self._error("ends in the middle: the file is cut off; get it again")
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > LONGEST:
                    raise self._error(f"no whole element in {LONGEST} characters: not JSON ({error.msg})") from None
                if not self._fill():
                    raise self._error(f"cut off, or not JSON ({error.msg}); get the file again") from None
                continue
            except RecursionError:
                raise self._error("nested too deeply to be a WebShop file") from None
            if end == len(self._text) and self._fill():
                continue  # a number may go on
            self._at = end
            return value

    def finish(self) -> None:
        if self._peek():
            raise self._error("goes on after its end")

    def _peek(self) -> str:
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _fill(self) -> bool:
        try:
            more = self._file.read(CHUNK + len(self._text) - self._at)  # doubling: an element is not parsed often
        except UnicodeDecodeError as error:
            raise self._error(f"not a UTF-8 text ({error.reason})") from None
        self._before += self._at
        self._text, self._at = self._text[self._at :] + more, 0
        return bool(more)

    def _error(self, what: str) -> FormatError:
        return FormatError(f"{self._path}: character {self._before + self._at}: {what}")
