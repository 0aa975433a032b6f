"""Variances as the mean of squares less the square of the mean, of which rounding is left: both are nearly equal."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.survey.rounded_differences import DIFFERENCES, ELEMENTS_MAX, FEW, FOUND_MAX, LARGE

PRODUCTS, POWERS = frozenset({"mul", "__mul__"}), frozenset({"pow", "__pow__"})
SQUARES = PRODUCTS | POWERS | {"square"}
NAMES = SQUARES | DIFFERENCES
SQUARES_HELD_MAX = 64
CANCELLED_SHARE = 0.2
"""A variance is lost if so large a share of its elements is rounding: ``FEW`` distances at most, or below zero."""

BELOW_ZERO_SHARE = 1e-3
"""Rounding takes a variance below zero by a smaller share of the mean of squares; by more it is none."""


class CancelledVariances:
    """Reads the operations named in ``NAMES``."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {}
        self._squares: deque[weakref.ref[Tensor]] = deque(maxlen=SQUARES_HELD_MAX)

    def saw(self, name: str, args: Sequence[Any], result: Any, line: str, step: int) -> None:
        """Keeps squares, and looks at what one is taken off."""
        if name in SQUARES:
            twice = name in PRODUCTS and len(args) > 1 and args[0] is args[1]
            second = name in POWERS and len(args) > 1 and args[1] in (2, 2.0) and not isinstance(args[1], Tensor)
            if isinstance(result, Tensor) and (twice or second or name == "square"):
                self._squares.append(weakref.ref(result))
            return
        is_new = line not in self._found and len(self._found) < FOUND_MAX
        if is_new and len(args) > 1 and any(square() is args[1] for square in self._squares):
            self._look(args[0], result, line, step)

    def _look(self, first: Any, result: Any, line: str, step: int) -> None:
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
            self._found[line] = {
                "line": line,
                "dtype": str(first.dtype).removeprefix("torch."),
                "distance": float(apart[at]),
                "largest": float(mean[at]),
                "left": float(left[at]),
                "step": step,
            }

    def found(self) -> list[dict[str, Any]] | None:
        """``{line, dtype, distance, largest, left, step}`` of the lines: what is left of the largest one."""
        return list(self._found.values()) or None
