"""Checks whether attention divides the query-key products by the root of their width.

A product is followed from the matrix multiplication to the softmax, through views, masks and casts. A factor below one
on the way, or earlier on a query or key, counts as a scale. So does a norm of queries or keys. Models without a scale
by design (T5) have small products, so the size of the products decides too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "einsum", "baddbmm"})
FACTORS = frozenset({"mul", "__mul__", "__rmul__", "mul_", "div", "__truediv__", "true_divide", "div_"})
DIVIDES = frozenset({"div", "__truediv__", "true_divide", "div_"})
NORMS = frozenset({"layer_norm", "rms_norm", "normalize", "group_norm"})
KEEPS = frozenset(
    {
        *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "contiguous", "transpose", "permute"),
        *("chunk", "split", "unbind", "tensor_split", "__getitem__", "expand", "repeat_interleave"),
        *("masked_fill", "masked_fill_", "where", "add", "__add__", "__radd__", "add_", "sub", "__sub__"),
        *("float", "half", "bfloat16", "to", "type_as", "clone", "__get__"),
    }
)
NAMES = PRODUCTS | FACTORS | NORMS | KEEPS
LARGE_SHARE = 0.2
"""The minimum root mean square of unscaled products, as a share of the root of the width. A default initialisation of
linear layers gives a third of the root; a model designed without a scale gives a hundredth.
"""

MASKED_BELOW = -1e4
"""An attention logit below this counts as masked: common masks add -1e4, -1e9, the smallest float or -inf."""

FLAT_SHARE = 0.02
"""A finite mask puts all keys of a row at one large negative number. Scores that exploded differ from each other
by more than this share of the highest."""

WIDTH_MIN = 4


def without_keys(logits: Tensor) -> Tensor:
    """Which attention rows have every key masked: all -Inf, or all at one number below ``MASKED_BELOW``.

    Args:
        logits: scores after the mask, shape [..., queries, keys], any float dtype.

    Returns:
        bool, shape [..., queries].
    """
    highest, lowest = logits.amax(-1), logits.amin(-1)
    flat = (highest - lowest).abs() <= FLAT_SHARE * highest.abs()
    masks = (highest <= MASKED_BELOW) & flat & (logits.shape[-1] > 1)
    return ((highest == -math.inf) | masks) & ~highest.isnan()


class Products:
    """Tracks which tensors are unscaled products of queries and keys."""

    def __init__(self) -> None:
        self._widths: Any = WeakIdKeyDictionary()
        self._scaled: Any = WeakIdKeyDictionary()
        self.unscaled: bool | None = None
        """None if no attention with a detectable scale was seen."""

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any) -> None:
        """Registers a call of a function in ``NAMES``."""
        sources = [one for one in _flat((*args, *given.values())) if isinstance(one, Tensor)]
        results = [one for one in _flat((result,)) if isinstance(one, Tensor)]
        scaled = any(one in self._scaled for one in sources)
        if name in PRODUCTS:
            factors = sources[-2:]
            if scaled or name == "baddbmm" or len(factors) < 2 or not all(one.requires_grad for one in factors):
                return self._mark(results, None, scaled)
            return self._mark(results, int(factors[0].shape[-1]), False)
        if name in NORMS or (name in FACTORS and _shrinks(name, args)):
            return self._mark(results, None, True)
        widths = [self._widths[one] for one in sources if one in self._widths]
        return self._mark(results, widths[0] if widths else None, scaled)

    def softmaxed(self, logits: Tensor) -> None:
        """Registers an attention softmax over ``logits``."""
        width = self._widths.get(logits)
        if width is None:
            if logits in self._scaled:
                self.unscaled = self.unscaled or False
            return
        self.judged(logits, width)

    def attended(self, query: Tensor, key: Tensor, logits: Tensor, scale: float | None) -> None:
        """Registers a fused attention, which scales unless ``scale`` overrides it."""
        by_itself = scale is None or abs(scale) < 1
        if by_itself or query in self._scaled or key in self._scaled:
            self.unscaled = self.unscaled or False
        else:
            self.judged(logits, int(query.shape[-1]))

    def judged(self, logits: Tensor, width: int) -> None:
        """Judges attention over unscaled products of vectors of size ``width``."""
        seen = logits[logits > MASKED_BELOW].float()
        if width < WIDTH_MIN or not seen.numel():
            return
        large = float(seen.square().mean().sqrt()) > LARGE_SHARE * math.sqrt(width)
        self.unscaled = bool(self.unscaled or large)

    def _mark(self, results: Sequence[Tensor], width: int | None, scaled: bool) -> None:
        for one in results:
            if width is not None and not scaled:
                self._widths[one] = width
            elif one in self._widths:
                del self._widths[one]  # changed in place, so no longer a product
            if scaled:
                self._scaled[one] = True


def _shrinks(name: str, args: Sequence[Any]) -> bool:
    """Whether the call multiplies or divides by a number so that the operand becomes smaller."""
    numbers = [float(one) for one in args[:2] if _is_number(one)]
    if not numbers or len(args) < 2:
        return False
    size = abs(numbers[-1])
    return size > 1 if name in DIVIDES else size < 1


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1 and not value.requires_grad
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _flat(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found += _flat(value) if isinstance(value, (list, tuple)) else [value]
    return found


def masked_before(args: Sequence[Any], given: Sequence[Tensor], result: Tensor) -> bool:
    """Whether the values that became -inf were masked before: one number far below zero in all these places."""
    lost = result.isinf()
    if bool((result[lost] > 0).any()):
        return False
    if any(isinstance(value, (int, float)) and value < MASKED_BELOW for value in args):
        return True
    for value in given:
        try:
            there = value.expand(result.shape)[lost]
        except RuntimeError:
            continue
        if bool((there == there[0]).all()) and float(there[0]) < MASKED_BELOW:
            return True
    return False
