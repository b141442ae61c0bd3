"""The only door to the alfworld, textworld and fast_downward packages.

Importing `alfworld` creates a folder and sets $ALFWORLD_DATA, translating a game overwrites `sys.argv`, and each
engine of textworld copies a 33.8 MB library to the temporary folder. Everything here avoids or undoes that.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

SUPPORTED = {"alfworld": "0.4.2", "textworld": "1.7.0"}
_INSTALL = "install the extra: pip install 'creditbench[alfworld]' (needs g++ and cmake)"
_owner: list[int] = []  # the thread that ran the engine first


def package_folder(name: str) -> Path:
    """Folder of an installed package, found without importing it. ImportError says how to install it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"the ALFWorld benchmark needs the package {name!r}, which is not installed; {_INSTALL}")
    return Path(next(iter(spec.submodule_search_locations)))


def versions() -> dict[str, str]:
    """Installed versions of the packages that the caches depend on ("" where one is missing)."""
    found = {}
    for name in SUPPORTED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


@functools.cache
def _module(package: str, relative: str) -> ModuleType:
    """Run one self-contained file of a package under a private name, without running the package's `__init__`."""
    path = package_folder(package) / relative
    spec = importlib.util.spec_from_file_location(f"_creditbench_{package}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot read {relative} of the package {package!r}; {_INSTALL}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def affordances() -> Any:
    """ALFWorld's tables (`alfworld.gen.constants`): which receptacle holds which object, what can be heated, ..."""
    return _module("alfworld", "gen/constants.py")


def goal_library() -> dict[str, dict[str, Any]]:
    """ALFWorld's goals by task type: `pddl` and the sentence `templates`."""
    library: dict[str, dict[str, Any]] = _module("alfworld", "gen/goal_library.py").gdict
    return library


@functools.cache
def domain_and_grammar() -> tuple[str, str]:
    """ALFWorld's PDDL domain and text grammar (the goal sentence in it reads UNKNOWN GOAL)."""
    data = package_folder("alfworld") / "data"
    return (data / "alfred.pddl").read_text(), (data / "alfred.twl2").read_text()


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Run engine code and leave `sys.argv`, `sys.stdout` and $ALFWORLD_DATA as they were.

    RuntimeError from a second thread: the engine keeps global state and breaks silently there.
    """
    _refuse_second_thread()
    argv, stdout, data = sys.argv, sys.stdout, os.environ.get("ALFWORLD_DATA")
    try:
        yield
    finally:
        sys.argv, sys.stdout = argv, stdout
        if data is None:
            os.environ.pop("ALFWORLD_DATA", None)
        else:
            os.environ["ALFWORLD_DATA"] = data


def _refuse_second_thread() -> None:
    this = threading.get_ident()
    if not _owner:
        _owner.append(this)
    if _owner[0] != this:
        raise RuntimeError(
            "ALFWorld's engine was called from a second thread, which it does not survive; "
            "use worker processes instead: pool(slots, workers=K)"
        )


@contextlib.contextmanager
def _slim_library() -> Iterator[None]:
    """Let engines made inside copy a library that keeps only what is mapped at run time: 1.1 MB of 33.8."""
    from fast_downward import interface

    stock = interface.DOWNWARD_LIB_PATH
    with tempfile.TemporaryDirectory(prefix="creditbench-") as folder:
        slim = Path(folder) / "libdownward.so"
        slim.write_bytes(_loadable_part(Path(stock)))
        interface.DOWNWARD_LIB_PATH = str(slim)
        try:
            yield
        finally:
            interface.DOWNWARD_LIB_PATH = stock


def fresh_library() -> Any:
    """One private copy of the planner library (it keeps global state, so engines cannot share one).

    Its space in the temporary folder is held until the process ends, although its name is gone at once. It is never
    unloaded: that makes the process crash at exit.
    """
    from fast_downward import interface

    with _slim_library():
        return interface.load_lib()


@functools.cache
def _loadable_part(path: Path) -> bytes:
    """An ELF file without what follows its last loadable segment (symbol tables, debug sections).

    A file of another kind comes back whole.
    """
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        return data
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    end = 0
    for index in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, table + index * size)
        if kind == 1:  # PT_LOAD
            end = max(end, offset + length)
    slim = bytearray(data[:end])
    struct.pack_into("<Q", slim, 40, 0)  # no section table any more
    struct.pack_into("<HH", slim, 60, 0, 0)
    return bytes(slim)


def stock_environment() -> Any:
    """A new stock environment: textworld's PddlEnv inside ALFWorld's own two wrappers."""
    with untouched(), tempfile.TemporaryDirectory(prefix="creditbench-") as folder:
        # alfworld creates this folder when first imported: point it at one that goes away again
        given = os.environ.get("ALFWORLD_DATA", "")
        os.environ["ALFWORLD_DATA"] = given if os.path.isdir(given) else folder
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld.envs import PddlEnv

        with _slim_library():
            engine = PddlEnv(textworld.EnvInfos(admissible_commands=True, won=True))
        return AlfredInfos(AlfredDemangler(engine, shuffle=False))
