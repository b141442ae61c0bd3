"""Names of the prompting baselines, apart from `algorithms.prompting`: tables know them without any benchmark."""

from __future__ import annotations

METHODS = ("prompting", "react")
