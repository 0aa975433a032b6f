"""Log rows from JSON: a list of many, and one flattened to numbers by name, with nested ones under ``outer/inner``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from steadytrain.logs.numerals import NotANumberError, number_of

DEPTH_MAX = 3
NUMBERS_MAX = 1_000


_NEXT = re.compile(r"[\s,]*(\{)?")


@dataclass
class RowList:
    """The objects of a JSON list that starts in ``text`` before ``place``, read one by one, because a long document
    takes several times its size as Python objects. At the end, ``place`` follows the last complete object."""

    text: str
    place: int
    _decoder: json.JSONDecoder = field(default_factory=json.JSONDecoder)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while (begin := _NEXT.match(self.text, self.place)) and begin[1]:
            try:
                row, self.place = self._decoder.raw_decode(self.text, begin.start(1))
            except (ValueError, RecursionError):
                return
            yield row

    @property
    def is_whole(self) -> bool:
        """Whether the list was closed. Valid after all of it was read."""
        return re.compile(r"\s*\]").match(self.text, self.place) is not None


def flat(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of ``row``, including text that is one (``"nan"``, ``"1,234"``). Everything else is dropped."""
    found: dict[str, float] = {}
    _collect(row, "", 0, found)
    return found


def _collect(row: Mapping[str, Any], prefix: str, depth: int, found: dict[str, float]) -> None:
    for name, value in row.items():
        if type(value) is float:
            found[f"{prefix}{name}"] = value
        elif isinstance(value, bool) or value is None:
            continue
        elif isinstance(value, (int, float)):
            found[f"{prefix}{name}"] = _bounded(value)
        elif isinstance(value, str):
            number = _of_text(value)
            if number is not None:
                found[f"{prefix}{name}"] = number
        elif isinstance(value, Mapping) and depth < DEPTH_MAX:
            _collect(value, f"{prefix}{name}/", depth + 1, found)
        if len(found) > NUMBERS_MAX:
            return


def _bounded(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _of_text(value: str) -> float | None:
    try:
        return number_of(value)
    except NotANumberError:
        return None
