"""Differences, remainders and phases of numbers so large that their format rounds away what is taken of them.

A float32 near 1.7e9 holds multiples of 128, and one near 5e6 multiples of a half. A difference of two such numbers has
only a few values; a remainder or a sine of one has lost its phase. A variance as the mean of squares less the square of
the mean is what rounding leaves of two numbers that are nearly equal.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

DIFFERENCES = frozenset({"sub", "__sub__", "rsub", "__rsub__", "sub_", "__isub__", "diff"})
REMAINDERS = frozenset({"remainder", "fmod", "__mod__"})
PHASES = frozenset({"sin", "cos"})
PRODUCTS, POWERS = frozenset({"mul", "__mul__"}), frozenset({"pow", "__pow__"})
SQUARES = PRODUCTS | POWERS | {"square"}
NAMES = DIFFERENCES | REMAINDERS | PHASES | SQUARES

LARGE = {torch.float32: 1e5, torch.float16: 1e3, torch.bfloat16: 1e3}
"""The smallest number of each format that is read: the neighbours of smaller ones lie close together."""

ELEMENTS_MIN, ELEMENTS_MAX = 16, 1 << 16
FEW, FEW_SHARE = 4, 0.5
"""A difference is rounded if so large a share of those that are not 0 is at most so many times the distance between
neighbouring numbers."""

PERIOD_SHARE, PHASE_MAX = 0.05, 0.3
"""Of a period, and in radians: the distance between neighbours from which on a phase is lost."""

BELOW_ZERO_SHARE = 1e-3
"""Rounding takes a variance below zero by a smaller share of the mean of squares; by more it is none."""

FOUND_MAX = 4
SQUARES_HELD_MAX = 64
CANCELLED_SHARE = 0.2
"""A variance is lost if so large a share of its elements is rounding: ``FEW`` distances at most, or below zero."""


class RoundedDifferences:
    """Reads the operations named in ``NAMES``."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {}
        self._squares: deque[weakref.ref[Tensor]] = deque(maxlen=SQUARES_HELD_MAX)

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any, line: str, step: int) -> None:
        """Compares the distance between the numbers of the first operand with what was made of them."""
        if name in SQUARES:
            self._keep_square(name, args, result)
            return
        key = f"{name.strip('_')} {line}"
        if key in self._found or len(self._found) >= FOUND_MAX or not args:
            return
        if name in DIFFERENCES and len(args) > 1 and any(one() is args[1] for one in self._squares):
            self._variance(key, args[0], result, line, step)
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

    def _keep_square(self, name: str, args: Sequence[Any], result: Any) -> None:
        twice = name in PRODUCTS and len(args) > 1 and args[0] is args[1]
        second = name in POWERS and len(args) > 1 and args[1] in (2, 2.0) and not isinstance(args[1], Tensor)
        if isinstance(result, Tensor) and (twice or second or name == "square"):
            self._squares.append(weakref.ref(result))

    def _variance(self, key: str, first: Any, result: Any, line: str, step: int) -> None:
        """``first`` less a square: rounding if little but that is left of most of it."""
        if not isinstance(first, Tensor) or first.dtype not in LARGE or first.is_meta or first.shape != result.shape:
            return
        mean, left = (one.detach().reshape(-1)[:ELEMENTS_MAX].double() for one in (first, result))
        known = mean.isfinite() & left.isfinite() & (mean > 0)
        if not bool(known.any()):
            return
        mean, left = mean[known], left[known]
        eps = torch.finfo(first.dtype).eps
        if bool((left < -max(BELOW_ZERO_SHARE, 4 * FEW * eps) * mean).any()):
            return  # no variance: a residual of a square
        apart = torch.exp2(torch.floor(torch.log2(mean))) * eps
        lost = (left <= FEW * apart) & (left != 0)
        if float(lost.double().mean()) >= CANCELLED_SHARE:
            at = int(torch.where(lost, mean, torch.zeros_like(mean)).argmax())
            self._found[key] = {
                "operation": "variance",
                "line": line,
                "dtype": str(first.dtype).removeprefix("torch."),
                "distance": float(apart[at]),
                "largest": float(mean[at]),
                "left": float(left[at]),
                "step": step,
            }

    def found(self) -> list[dict[str, Any]] | None:
        """``{operation, line, dtype, distance, largest, step}`` of the lines, in the order in which they were met; of a
        variance also what is ``left`` of the largest one."""
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
