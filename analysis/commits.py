"""Runs of different code in one table: which is the usual commit, and who differs."""

from __future__ import annotations

import pandas as pd


def known_commits(commits: pd.Series) -> pd.Series:
    """Commits with a word for those that weren't recorded."""
    return commits.replace("", "unknown")


def usual_commit(commits: pd.Series) -> str:
    """The commit of most runs; of equally common ones the first by alphabet."""
    return str(commits.value_counts().sort_index().idxmax())


def short_commit(commit: str) -> str:
    """A commit, and the hash of changes that were not committed, as a reader tells them apart."""
    code, _, changes = commit.partition("+")
    return code[:8] + (f" with uncommitted changes {changes[:6]}" if changes else "")


def odd_ones(names: pd.Series, seeds: pd.Series, commits: pd.Series) -> tuple[set[str], str]:
    """(names with a run of other code than the usual, one line that says which); nothing when all agree."""
    commits = known_commits(commits)
    if commits.nunique() < 2:
        return set(), ""
    usual = usual_commit(commits)
    odd = commits != usual
    others = [
        f"{name}, seed {seed} at {short_commit(commit)}"
        for name, seed, commit in zip(names[odd], seeds[odd], commits[odd], strict=True)
    ]
    return set(names[odd]), f"Code differs: unmarked runs are of commit {short_commit(usual)}; {'; '.join(others)}."
