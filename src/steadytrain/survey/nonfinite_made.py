"""The script's own operations that make a non-finite number out of finite ones, in the surveyed steps.

The search for the first bad operation runs the step again in the training process, and cannot always: an environment
gives another observation, a generator another batch. The survey replays the steps as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

MADE_MAX = 4
NAMES = frozenset(
    {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "pow", "__pow__", "exp", "expm1", "exp2"}
    | {"div", "true_divide", "__truediv__", "__rtruediv__", "div_", "__itruediv__"}
    | {"acos", "asin", "atanh", "arctanh", "acosh", "erfinv", "logit", "mean", "std", "var", "norm", "cosh", "sinh"}
)


class NonfiniteMade:
    """``found`` lists ``{operation, line, step, made}``."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def saw(self, name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any, line: str, step: int) -> None:
        if len(self.found) >= MADE_MAX or not _is_number(result) or bool(torch.isfinite(result).all()):
            return
        if not all(bool(torch.isfinite(value).all()) for value in _numbers([*args, *given.values()])):
            return
        made = "NaN" if bool(torch.isnan(result).any()) else "Inf"
        self.found.append({"operation": name.strip("_"), "line": line, "step": step, "made": made})


def _numbers(values: Iterable[Any]) -> Iterable[Tensor]:
    return (value for value in values if _is_number(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
