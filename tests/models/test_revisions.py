"""A revision of a hub model is the one that is loaded, or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from algorithms.policy import PolicyError, hub_folder
from sweeps import preflight
from sweeps.config import ConfigError, compose


def test_without_a_revision_the_name_stays():
    assert hub_folder("Qwen/Qwen3-4B", None) == Path("Qwen/Qwen3-4B")


def test_with_a_revision_it_is_the_folder_of_that_one(monkeypatch):
    import huggingface_hub

    asked = []

    def download(name, *, revision, allow_patterns):
        asked.append((name, revision, "*.safetensors" in allow_patterns))
        return "/cache/snapshots/abc"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert hub_folder("Qwen/Qwen3-4B", "abc") == Path("/cache/snapshots/abc")
    assert asked == [("Qwen/Qwen3-4B", "abc", True)]


def test_a_revision_that_cannot_be_had_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(PolicyError, match=r"model 'nobody/nothing' at revision 'abc' cannot be had: ") as caught:
        hub_folder("nobody/nothing", "abc")
    assert "\n" not in str(caught.value)


def test_a_folder_has_no_revision(tmp_path):
    config = compose(["model=hub", f"model.path={tmp_path}", "model.revision=abc", "benchmark=worlds"])
    with pytest.raises(ConfigError, match=r"model\.revision=abc is of a hub name"):
        preflight.check(config)
