"""The code that queued jobs will run: a copy of the commit, made at submission, so that later edits change nothing.

OUT/code/COMMIT/            the packages of that commit, and code.json
OUT/code/COMMIT-DIRTY/      the working tree, its difference from the commit in changes.diff
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sweeps import environment
from sweeps.environment import CODE
from sweeps.files import StoreError, atomic_write_json, atomic_write_text

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Code:
    """Code for jobs: the folder that goes first on PYTHONPATH (None: the installed package) and what it is."""

    folder: Path | None
    commit: str | None
    dirty: str | None


def take(out: Path, allow_dirty: bool, copy: bool = True) -> Code:
    """Freeze the running code below `out`, once for each state of it. StoreError for uncommitted changes unless
    allowed.

    Outside a git checkout there is nothing to freeze: jobs run the installed package.
    """
    version = environment.code_version()
    commit, dirty = version["commit"], version["dirty"]
    if commit is None:
        return Code(None, None, None)
    if dirty and not allow_dirty:
        raise StoreError(
            f"uncommitted changes in {', '.join(CODE)} of {_ROOT}: commit them, or give --allow-dirty to run them "
            "as they are now (a copy and the difference are kept)"
        )
    if not copy:
        return Code(None, commit, dirty)
    folder = Path(out).resolve() / "code" / (f"{commit[:16]}-{dirty}" if dirty else commit[:16])
    if not folder.is_dir():
        _build(folder, commit, dirty)
    return Code(folder, commit, dirty)


def _build(folder: Path, commit: str, dirty: str | None) -> None:
    """Beside its place, then renamed: there is a whole copy or none."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        if dirty:
            _copy_tree(draft)
            atomic_write_text(
                draft / "changes.diff", _git("diff", "--binary", "HEAD", "--", *CODE).decode("utf-8", "replace")
            )
        else:
            _unpack_commit(draft, commit)
        atomic_write_json(draft / "code.json", {"schema": 1, "commit": commit, "dirty": dirty})
        draft.chmod(0o755)
        draft.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another submit was quicker
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _unpack_commit(draft: Path, commit: str) -> None:
    present = [name for name in CODE if (_ROOT / name).is_dir()]
    archive = _git("archive", "--format=tar", commit, "--", *present)
    done = subprocess.run(["tar", "-x", "-C", str(draft)], input=archive, capture_output=True, check=False)
    if done.returncode:
        raise StoreError(f"the copy of commit {commit[:12]} cannot be unpacked: {done.stderr.decode().strip()}")


def _copy_tree(draft: Path) -> None:
    names = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *CODE)
    for name in sorted(filter(None, names.decode().split("\0"))):
        source = _ROOT / name
        if source.is_file():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, draft / name)


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(_ROOT), *arguments], capture_output=True, check=False)
    if done.returncode:
        raise StoreError(f"git {arguments[0]} failed: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout


def python_environment(folder: Path | None) -> dict[str, str]:
    """Variables with which Python imports the frozen copy, and nothing from the folder it is started in."""
    if folder is None:
        return {}
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
