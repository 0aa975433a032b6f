"""The script's own operations that make a non-finite number out of finite ones, in the surveyed steps.

The search for the first bad operation runs the step again in the training process, and cannot always: an environment
gives another observation, a generator another batch. The survey replays the steps as they were.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

MADE_MAX, ROWS_MAX = 4, 16
NAMES = frozenset(
    {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "pow", "__pow__", "exp", "expm1", "exp2"}
    | {"div", "true_divide", "__truediv__", "__rtruediv__", "div_", "__itruediv__"}
    | {"acos", "asin", "atanh", "arctanh", "acosh", "erfinv", "logit", "mean", "std", "var", "norm", "cosh", "sinh"}
    | {"i0", "i1", "special_i0", "special_i1", "special_erfcx", "lgamma", "digamma", "polygamma", "special_ndtri"}
)
REDUCES = frozenset({"norm", "vector_norm", "std", "var", "sum", "amax", "mean", "abs", "square", "sqrt"})
DIVIDES = frozenset({"div", "true_divide", "__truediv__", "div_", "__itruediv__"})
WATCHED = NAMES | REDUCES
HELD_MAX = 64


class NonfiniteMade:
    """``found`` lists ``{operation, line, step, made, rows, of, by, before_model}``.

    ``rows`` are the indices along the first dimension of the result, of ``of``, where the bad values are; empty if they
    are in all of them, or in more than ``ROWS_MAX``. ``by`` is the function that made the divisor: a norm, a standard
    deviation, a sum; "" if unknown. ``before_model``: the step had called no model yet.
    """

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self._makers: deque[tuple[Any, str]] = deque(maxlen=HELD_MAX)
        self.before_model = True
        """Whether the step has called no model yet."""

    def step_begins(self) -> None:
        """Forgets the tensors of the previous step."""
        self._makers.clear()
        self.before_model = True

    def model_called(self) -> None:
        """Reports that the step calls a model."""
        self.before_model = False

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any, line: str, step: int) -> None:
        if name in REDUCES:
            self._makers.append((result, name))
        if name not in NAMES or len(self.found) >= MADE_MAX or not _is_number(result):
            return
        if not _is_finite(_numbers([*args, *given.values()])) or _is_finite([result]):
            return
        divisor = args[1] if name in DIVIDES and len(args) > 1 else None
        by = next((maker for value, maker in self._makers if divisor is not None and value is divisor), "")
        made = "NaN" if bool(torch.isnan(result).any()) else "Inf"
        of = int(result.shape[0]) if result.dim() else 0
        found = {"operation": name.strip("_"), "line": line, "step": step, "made": made}
        self.found.append({**found, "rows": _rows(result), "of": of, "by": by, "before_model": self.before_model})


def _is_finite(values: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in values)


def _rows(result: Tensor) -> list[int]:
    """The few indices along the first dimension whose values are not finite."""
    if result.dim() == 0 or result.shape[0] < 2:
        return []
    bad = (~torch.isfinite(result)).reshape(result.shape[0], -1).any(1)
    rows: list[int] = bad.nonzero().flatten().tolist()
    return rows if len(rows) <= min(ROWS_MAX, result.shape[0] // 2) else []


def _numbers(values: Iterable[Any]) -> Iterable[Tensor]:
    return (value for value in values if _is_number(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
