"""Differences, remainders and phases of numbers so large that their format rounds away what is taken of them.

A float32 near 1.7e9 holds multiples of 128, and one near 5e6 multiples of a half. A difference of two such numbers has
only a few values; a remainder or a sine of one has lost its phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

DIFFERENCES = frozenset({"sub", "__sub__", "rsub", "__rsub__", "sub_", "__isub__", "diff"})
REMAINDERS = frozenset({"remainder", "fmod", "__mod__"})
PHASES = frozenset({"sin", "cos"})
NAMES = DIFFERENCES | REMAINDERS | PHASES

LARGE = {torch.float32: 1e5, torch.float16: 1e3, torch.bfloat16: 1e3}
"""The smallest number of each format that is read: the neighbours of smaller ones lie close together."""

ELEMENTS_MIN, ELEMENTS_MAX = 16, 1 << 16
FEW, FEW_SHARE = 4, 0.5
"""A difference is rounded if so large a share of those that are not 0 is at most so many times the distance between
neighbouring numbers."""

PERIOD_SHARE, PHASE_MAX = 0.05, 0.3
"""Of a period, and in radians: the distance between neighbours from which on a phase is lost."""

FOUND_MAX = 4


class RoundedDifferences:
    """Reads the operations named in ``NAMES``."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {}

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any, line: str, step: int) -> None:
        """Compares the distance between the numbers of the first operand with what was made of them."""
        key = f"{name.strip('_')} {line}"
        if key in self._found or len(self._found) >= FOUND_MAX or not args:
            return
        apart = _distance(args[0])
        if apart is None:
            return
        if name in DIFFERENCES:
            lost = name == "diff" or _is_large(args[1] if len(args) > 1 else given.get("other"))
            lost = lost and _has_few_values(result, apart)
        elif name in REMAINDERS:
            period = args[1] if len(args) > 1 else given.get("other", given.get("divisor"))
            lost = isinstance(period, (int, float)) and abs(period) > 0 and apart > PERIOD_SHARE * abs(period)
        else:
            lost = apart > PHASE_MAX
        if lost:
            kind = "difference" if name in DIFFERENCES else "remainder" if name in REMAINDERS else "phase"
            self._found[key] = {
                "operation": kind,
                "line": line,
                "dtype": str(args[0].dtype).removeprefix("torch."),
                "distance": apart,
                "largest": float(args[0].detach().abs().max()),
                "step": step,
            }

    def found(self) -> list[dict[str, Any]] | None:
        """``{operation, line, dtype, distance, largest, step}`` of the lines, in the order in which they were met."""
        return list(self._found.values()) or None


def _distance(value: Any) -> float | None:
    """The distance between neighbouring numbers at the median of a tensor of large ones, else None."""
    if not _is_large(value):
        return None
    middle = float(value.detach().reshape(-1)[:ELEMENTS_MAX].abs().double().median())
    if not LARGE[value.dtype] <= middle < float("inf"):
        return None
    exponent = torch.floor(torch.log2(torch.tensor(middle, dtype=torch.float64)))
    return float(torch.exp2(exponent)) * torch.finfo(value.dtype).eps


def _is_large(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.dtype not in LARGE or value.numel() == 0 or value.is_meta:
        return False
    return float(value.detach().abs().max()) >= LARGE[value.dtype]


def _has_few_values(result: Any, apart: float) -> bool:
    if not isinstance(result, Tensor) or result.numel() < ELEMENTS_MIN:
        return False
    sizes = result.detach().reshape(-1)[:ELEMENTS_MAX].abs().double()
    sizes = sizes[(sizes > 0) & sizes.isfinite()]
    return bool(sizes.numel() >= ELEMENTS_MIN // 2) and float((sizes <= FEW * apart).double().mean()) >= FEW_SHARE
