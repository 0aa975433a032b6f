"""Parse numbers as people and programs write them: ``1,234.5``, ``"0.3"``, ``NaN``, ``-inf``, ``Infinity``, or empty.

An empty cell was not logged and is absent; NaN and Inf were logged and stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import FloatArray

ABSENT = frozenset({"", "-", "--", "none", "null", "na", "n/a", "<na>", "nil", "undefined", "."})
"""Cell texts that mean "not logged"."""

PLAIN_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
NUMBER = rf"(?:[-+]?{PLAIN_NUMBER}|[-+]?(?:nan|inf(?:inity)?))"
"""A number in running text (match it case-insensitively)."""

_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:[,_' ]\d{3})+(?:\.\d*)?")
_TENSOR = re.compile(r"tensor\(\[?([^,\])]+)")
_NUMBER_CELL_MAX = 200


class NotANumberError(ValueError):
    """A cell holds text."""


def counted(count: int, noun: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number_of(cell: str) -> float | None:
    """The number in ``cell``, None if nothing was logged.

    Raises:
        NotANumberError: it holds something else.
    """
    text = cell.strip().strip("\"'").strip()
    try:
        return float(text)
    except ValueError:
        pass
    if text.lower() in ABSENT:
        return None
    if len(text) <= _NUMBER_CELL_MAX:
        if _THOUSANDS.fullmatch(text):
            return float(re.sub(r"[,' _]", "", text))
        lowered = text.lower()
        if lowered in ("-nan", "+nan", "nan(ind)", "-nan(ind)", "1.#qnan", "-1.#ind"):
            return float("nan")
        tensor = _TENSOR.match(lowered)  # a tensor printed without .item()
        if tensor:
            return number_of(tensor[1])
    raise NotANumberError(cell)


def numbers_of(cells: Sequence[str]) -> tuple[FloatArray, NDArray[np.bool_], list[int]]:
    """The values of ``cells``, a mask of those that exist, and the positions of text cells."""
    try:
        return np.array(list(map(float, cells)), np.float64), np.ones(len(cells), np.bool_), []
    except ValueError:
        pass
    values, present, text = np.full(len(cells), np.nan), np.ones(len(cells), np.bool_), []
    for position, cell in enumerate(cells):
        try:
            number = float(cell) if cell else None
        except ValueError:
            try:
                number = number_of(cell)
            except NotANumberError:
                number = None
                text.append(position)
        if number is None:
            present[position] = False
        else:
            values[position] = number
    return values, present, text
