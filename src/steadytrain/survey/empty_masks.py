"""Finds means over a mask that selects nothing, however they are written.

``(loss * mask).sum() / mask.sum()``, a count by row, ``loss[mask].mean()``, a loss function on an empty selection: the
sum or the mean of a mask is followed to the division (also through a bound that lets 0 pass), and an empty selection to
the mean. A sum of floating-point numbers counts as
a mask's if they were 0 and 1 only at this line so far, and not all 0 each time. A small number that is added to the
count keeps the division finite: then only a quotient that is large counts, of a sum over more than the mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

COUNTS = frozenset({"sum", "count_nonzero"})
SELECTS = frozenset({"__getitem__", "masked_select"})
MEANS = frozenset({"mean", "nanmean"})
ADDS = frozenset({"add", "add_", "__add__", "__radd__", "__iadd__"})
BOUNDS = frozenset({"clamp", "clamp_", "clamp_min", "clamp_min_", "clip", "clip_", "maximum", "relu"})
PASSES_ON = frozenset(
    {"float", "double", "half", "bfloat16", "long", "to", "type", "type_as", "unsqueeze", "squeeze", "view", "reshape"}
    | {"flatten", "detach", "expand", "expand_as", "cpu", "item", "clone", "contiguous", "__getitem__", "sum", "sqrt"}
    | BOUNDS
)
NAMES = COUNTS | SELECTS | MEANS | PASSES_ON | ADDS
ADDED_MAX, LARGE_MIN = 1e-2, 100.0
"""The largest number that is added to keep a count from 0, and the quotient by it that is no mean."""

HELD_MAX, FOUND_MAX, ROWS_MAX = 64, 8, 16


class EmptyMasks:
    """Follows counts of masks and empty selections within a step. ``call`` numbers the model's calls, from 0, and
    ``inside`` says whether one is running."""

    def __init__(self) -> None:
        self.call = 0
        self.inside = False
        self.found: list[dict[str, Any]] = []
        self._counts: list[tuple[Any, Tensor]] = []
        self._empty: list[tuple[Tensor, Tensor]] = []
        self._binary: dict[str, bool] = {}

    def step_begins(self) -> None:
        """Forgets the tensors of the previous step."""
        self.call, self.inside, self.found, self._counts, self._empty = 0, False, [], [], []

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any, line: str) -> None:
        """Reads a call of one of ``NAMES``."""
        value = args[0] if args else given.get("input")
        if not isinstance(value, Tensor):
            return
        added = args[1] if name in ADDS and len(args) > 1 else None
        if name in PASSES_ON or (isinstance(added, (int, float)) and 0 < added <= ADDED_MAX):
            source = next((mask for count, mask in self._counts if count is value), None)
            if source is not None:
                self._hold(self._counts, (result, source))
                return
        if (name in COUNTS or (name in MEANS and value.numel())) and self._is_mask(value, line):
            self._hold(self._counts, (result, value.detach()))
        elif name in SELECTS and isinstance(result, Tensor) and result.numel() == 0:
            index = args[1] if len(args) > 1 else given.get("mask")
            mask = next((one for one in _parts(index) if isinstance(one, Tensor) and one.dtype == torch.bool), None)
            if mask is not None and mask.numel():
                self._hold(self._empty, (result, mask))
        elif name in MEANS and value.numel() == 0:
            self.averaged(value, line)

    def averaged(self, value: Tensor, line: str) -> None:
        """A mean over ``value``, which has no elements."""
        mask = next((mask for kept, mask in self._empty if kept is value), None)
        if mask is None:
            mask = next((mask for _, mask in self._empty), None)
        self._tell(line, [], mask, pools=value.dim() > 1)

    def divided(self, numerator: Any, denominator: Any, line: str) -> None:
        """A division by ``denominator``, a tensor or a number, right before it. Only what is learned from is a mean
        over labels: a count of neighbours or of words divides, too."""
        if isinstance(numerator, Tensor) and not numerator.requires_grad:
            return
        if isinstance(denominator, Tensor):
            source = next((mask for count, mask in self._counts if count is denominator), None)
            if source is None:
                return
            small = denominator.detach().reshape(-1)
            zeros = small == 0
            if not bool(zeros.any()):
                self._tell_small(numerator, small, source, line)
                return
            by_row = source.dim() > 0 and zeros.numel() == source.shape[0] > 1
            rows = zeros.nonzero().flatten().tolist() if by_row else []
            self._tell(line, rows, source, pools=_has_features(numerator, denominator))
        elif denominator == 0:
            source = next((mask for count, mask in self._counts if not bool(mask.any())), None)
            if source is not None:
                self._tell(line, [], source)

    def _tell_small(self, numerator: Any, denominator: Tensor, mask: Tensor, line: str) -> None:
        """A count of nothing and a small number: tell it if the quotient is large."""
        if denominator.numel() == 1 and 0.0 < float(denominator) <= ADDED_MAX and isinstance(numerator, Tensor):
            quotient = float(numerator.detach().abs().max()) / float(denominator)
            if quotient >= LARGE_MIN:
                pools = _has_features(numerator, denominator)
                self._tell(line, [], mask, pools=pools, divisor=float(denominator), quotient=quotient)

    def _is_mask(self, value: Tensor, line: str) -> bool:
        if value.requires_grad or value.dim() == 0 or value.numel() < 2:
            return False
        if not value.is_floating_point():
            return value.dtype == torch.bool or bool(((value == 0) | (value == 1)).all())
        if bool(value.any()):
            binary = bool(((value == 0) | (value == 1)).all())
            self._binary[line] = self._binary.get(line, True) and binary
        return self._binary.get(line, False)

    def _tell(self, line: str, rows: list[int], mask: Tensor | None, *, pools: bool = False, **numbers: float) -> None:
        """``pools``: the mean is one of vectors. A model that returns its loss divides numbers by their count, too."""
        if len(self.found) < FOUND_MAX:
            of, call = int(mask.shape[0]) if mask is not None and mask.dim() else 0, max(0, self.call - 1)
            told = {"line": line, "rows": rows[:ROWS_MAX], "whole": not rows, "of": of, "call": call}
            self.found.append({**told, "in_model": self.inside and pools, **numbers})

    @staticmethod
    def _hold(held: list[Any], pair: Any) -> None:
        if len(held) < HELD_MAX:
            held.append(pair)


def _has_features(numerator: Any, denominator: Tensor) -> bool:
    """Whether several numbers are divided by one count: the features of a row."""
    return isinstance(numerator, Tensor) and numerator.dim() > 1 and numerator.numel() > denominator.numel()


def _parts(index: Any) -> Sequence[Any]:
    return index if isinstance(index, tuple) else (index,)
