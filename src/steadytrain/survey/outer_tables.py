"""Finds where a vector met a column before the loss: [N] with [N, 1] makes a table [N, N]."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torch import Tensor

NAMES = frozenset({"add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "rsub", "mul", "__mul__", "__rmul__"})
KEPT_MAX = 64


class OuterTables:
    """The tables of the script that are still there, each with its line."""

    def __init__(self) -> None:
        self._made: list[tuple[weakref.ref[Tensor], str]] = []

    def saw(self, name: str, args: Sequence[Any], result: Any, line: str) -> None:
        """Keeps a table that ``name`` made of ``args``."""
        one, other = (list(side.shape) for side in args[:2])
        self._made = [kept for kept in self._made if kept[0]() is not None][-KEPT_MAX + 1 :]
        self._made.append((weakref.ref(result), f"{one} met {other} at {line}"))

    def said(self, tensor: Tensor) -> str:
        """Where ``tensor`` became a table, after a comma; "" if it is none of them."""
        for made, text in reversed(self._made):
            table = made()
            if table is not None and table.shape == tensor.shape and table.data_ptr() == tensor.data_ptr():
                return f", a table since {text}"
        return ""


def makes_table(name: str, args: Sequence[Any], result: Any) -> bool:
    """Whether the function ``name`` made ``result`` [N, N] of [N] and [N, 1]."""
    if name not in NAMES:
        return False
    sides = [tuple(one.shape) for one in args[:2] if isinstance(one, Tensor)]
    if len(sides) != 2 or not isinstance(result, Tensor) or result.dim() != 2:
        return False
    rows = result.shape[0]
    return rows > 1 and result.shape[1] == rows and set(sides) == {(rows,), (rows, 1)}
