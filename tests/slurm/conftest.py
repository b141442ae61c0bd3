"""Fixtures of the tests on a real Slurm."""

from slurm_sandbox import checkout, store

__all__ = ["checkout", "store"]
