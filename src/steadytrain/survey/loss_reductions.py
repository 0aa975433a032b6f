"""How the terms of a loss were reduced: over how many elements each is a mean, and how many it sums for each of them.

A term that is averaged over all elements of a row stands beside one that is summed over its row: their balance then
depends on the sizes of the rows, and not on the weight that the script gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

MEAN_LOSSES = frozenset(
    {
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "cross_entropy",
        "nll_loss",
    }
)
SCALES = frozenset({"mul", "__mul__", "__rmul__", "div", "__truediv__", "true_divide", "neg", "__neg__"})
DIVIDES = frozenset({"div", "__truediv__", "true_divide"})
NAMES = MEAN_LOSSES | SCALES | {"mean", "sum"}

TIMES_MIN = 16
"""A term is averaged over this many times as many elements as the other: pixels or tokens, and not some heads."""

HEAVY_MIN = 10.0
"""The summed term weighs this much more than beside a sum over the same rows with weight 1. Weights from 1 to 4 are
usual there (beta-VAE)."""


@dataclass(frozen=True)
class Reduction:
    """A mean over ``count`` elements, each the sum of ``summed``, times ``weight``."""

    count: float
    summed: float
    weight: float = 1.0


class Reductions:
    """Follows sums, means and factors from the tensors that were reduced to the terms of the loss."""

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any) -> None:
        """Reads one call."""
        if not isinstance(result, Tensor) or not args:
            return
        found = self._of(name, args, given, result)
        if found is not None:
            self._known[result] = found

    def unequal(self, one: Tensor, other: Tensor) -> dict[str, float] | None:
        """The numbers of two terms of a loss if one is a mean over the elements of its rows, and the other, a sum over
        them, outweighs it; None otherwise."""
        averaged, summed = self._known.get(one), self._known.get(other)
        if averaged is None or summed is None or averaged.weight == 0.0:
            return None
        if averaged.summed > 1 or summed.summed < 2 or summed.count < 2:
            return None
        times = averaged.count / summed.count
        heavier = abs(summed.weight / averaged.weight) * times
        if times < TIMES_MIN or heavier < HEAVY_MIN:
            return None
        return {"averaged": times, "summed": summed.summed, "heavier": heavier}

    def _of(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Tensor) -> Reduction | None:
        source = next((one for one in args if isinstance(one, Tensor) and one in self._known), None)
        known: Reduction | None = self._known[source] if source is not None else None
        if name in MEAN_LOSSES:
            target = args[1] if len(args) > 1 else given.get("target")
            mean = given.get("reduction", "mean") == "mean" and isinstance(target, Tensor)
            return Reduction(target.numel(), 1) if mean and isinstance(target, Tensor) else None
        if name in ("mean", "sum"):
            return _reduced(name, args[0], known, result)
        if known is None or source is None or source.shape != result.shape:
            return None
        if name in ("neg", "__neg__"):
            return known
        factor = next((_number(one) for one in args if one is not source), None)
        if not factor:
            return replace(known, weight=0.0) if factor == 0.0 and name not in DIVIDES else None
        if name not in DIVIDES:
            return replace(known, weight=known.weight * factor)
        if args[0] is not source:
            return None
        if known.count == 1 and factor > 1 and known.summed % factor == 0:  # `loss.sum() / rows`
            return Reduction(factor, known.summed / factor, known.weight)
        return replace(known, weight=known.weight / factor)


def _reduced(name: str, source: Any, known: Reduction | None, result: Tensor) -> Reduction | None:
    if not isinstance(source, Tensor) or not result.numel() or source.numel() % result.numel():
        return None
    before = known or Reduction(1, 1)
    each = source.numel() // result.numel()
    if name == "sum":
        return replace(before, summed=before.summed * each) if before.count == 1 else None
    return replace(before, count=before.count * each)


def _number(value: Any) -> float | None:
    """A factor that is no term itself: a number, or a tensor of one element without a gradient."""
    if isinstance(value, Tensor):
        return float(value.detach()) if value.numel() == 1 and not value.requires_grad else None
    return float(value) if isinstance(value, (int, float)) else None
