"""docs/signals.md says of every recorded number what the code says of it."""

from __future__ import annotations

import re
from pathlib import Path

from steadytrain.capture.machine import COLUMNS
from steadytrain.capture.tensors.activations import COLUMNS as OUTPUT_COLUMNS
from steadytrain.capture.tensors.statistics import COLUMNS as TENSOR_COLUMNS
from steadytrain.core.model import SIGNALS

DOCUMENT = Path(__file__).parents[2] / "docs" / "signals.md"


def documented(column: str) -> dict[str, str]:
    """Name and meaning, of the tables with this heading."""
    found: dict[str, str] = {}
    for table in re.findall(rf"^\| {column} \| meaning \|\n\|---\|---\|\n((?:\|.*\|\n)+)", DOCUMENT.read_text(), re.M):
        found |= dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.M))
    return found


def test_signals() -> None:
    assert documented("signal") == dict(SIGNALS)


def test_columns_of_the_machine() -> None:
    assert documented("column") == dict(COLUMNS)


def test_columns_of_tensors() -> None:
    assert documented("statistic") == dict(TENSOR_COLUMNS)


def test_columns_of_outputs() -> None:
    assert documented("output") == dict(OUTPUT_COLUMNS)
