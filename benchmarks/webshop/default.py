"""The default catalogue: sixty hand-made products and generated ones, built on first use and kept.

It lies in $CREDITBENCH_CACHE, else in the user's cache folder, under a name that changes with whatever made it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import lru_cache
from pathlib import Path

from benchmarks.webshop import build, generator
from benchmarks.webshop.store import FORMAT, Store

NAME = "made"
SIZE = 1000
SEED = 0
_MAKERS = (
    "generator.py",
    "products.py",
    "analyzer.py",
    "porter.py",
    "postings.py",
    "mapped.py",
    "places.py",
    "tagging.py",
    "build.py",
)


def cache_folder() -> Path:
    """Where built catalogues are kept."""
    own = os.environ.get("CREDITBENCH_CACHE")
    if own:
        return Path(own) / "webshop"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "creditbench" / "webshop"


def made_folder(size: int = SIZE) -> Path:
    """The folder of the made catalogue with `size` products; built now if it is not there."""
    folder = cache_folder() / f"{NAME}-{size}-{_version()}"
    if not folder.is_dir():
        _build(folder, size)
    return folder


def _build(folder: Path, size: int) -> None:
    with tempfile.TemporaryDirectory() as files:
        paths = generator.write(Path(files), size, SEED)
        try:
            build.build(paths, folder, name=f"{NAME}-{size}")
        except (build.BuildError, OSError):
            if not folder.is_dir():  # else another process was quicker
                raise


@lru_cache(maxsize=1)
def _version() -> str:
    """A hash of the modules and words that decide what is built."""
    here = Path(__file__).parent
    found = hashlib.sha256(str(FORMAT).encode())
    for path in [*(here / name for name in _MAKERS), *sorted(generator.MADE.glob("*.json"))]:
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


@lru_cache(maxsize=4)
def open_store(data: str) -> Store:
    """The catalogue `made`, `made-N` (N products), or the one in a folder; opened once a process."""
    if data == NAME:
        return Store(made_folder())
    size = data.removeprefix(f"{NAME}-")
    if size != data and size.isdecimal() and int(size) >= 60:
        return Store(made_folder(int(size)))
    return Store(Path(data).expanduser())
