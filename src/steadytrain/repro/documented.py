"""Which reproduced values are documented behaviour (0/0, log 0), so that nobody is sent to report them as a bug. Pure.

An operation outside its domain gives NaN or Inf by IEEE 754 and by the documentation of torch. The fault then lies in
the code that lets such an input through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steadytrain.core.incident import OperandRange

EXP_MAX = {"float16": 11.09, "bfloat16": 88.7, "float32": 88.72, "float64": 709.78}
"""The largest argument of exp with a finite result. Source: IEEE 754, the logarithm of the largest number."""

PLAIN = frozenset(
    (
        *("where", "mul", "sum", "mean", "sub", "add", "neg", "masked_fill"),
        *("_to_copy", "view", "expand", "unsqueeze", "select", "slice"),
    )
)
"""Operations that only carry a value on, or hide it: they may stand beside a documented one."""


@dataclass(frozen=True)
class Documented:
    """What an operation does by design, and how code keeps its input inside the domain."""

    behaviour: str
    instead: str


_DIVISION = Documented(
    "0/0 is NaN and any other number over 0 is Inf",
    "divide by `count.clamp(min=1)`, or by `value + epsilon`",
)
_LOGARITHM = Documented(
    "the logarithm of 0 is -Inf and that of a negative number NaN",
    "`x.clamp(min=1e-6).log()`, or a loss that takes logits",
)
_ROOT = Documented(
    "the root of a negative number is NaN, and its gradient at 0 is Inf",
    "`x.clamp(min=1e-12).sqrt()`",
)
_EXPONENTIAL = Documented(
    "exp exceeds the largest number of its dtype and gives Inf",
    "`x.clamp(max=80).exp()`, or `logsumexp` and `softmax`, which subtract the largest value",
)
_BESSEL = Documented(
    "it grows as exp does, exceeds the largest number of its dtype and gives Inf",
    "`torch.special.i0e(x)` and `i1e(x)`, which are scaled, and `log_i0 = i0e(x).log() + x.abs()`",
)
_POWER = Documented(
    "0 to a negative power is Inf, and a negative number to a fraction NaN",
    "`x.clamp(min=1e-6).pow(p)`",
)
_NO_TARGET = Documented(
    "the mean over no target is 0/0, which is NaN",
    "leave out rows without a target, or `reduction='sum'` over `count.clamp(min=1)`",
)
_ONE_ROW = Documented("the variance of one number is 0/0 with the usual correction", "`x.var(correction=0)`")

BY_OPERATION: Mapping[str, Documented] = {
    **dict.fromkeys(("div", "div_", "reciprocal", "reciprocal_", "addcdiv", "addcdiv_", "remainder"), _DIVISION),
    **dict.fromkeys(("log", "log2", "log10", "log1p", "log_", "xlogy", "logit"), _LOGARITHM),
    **dict.fromkeys(("sqrt", "sqrt_", "rsqrt"), _ROOT),
    **dict.fromkeys(("exp", "exp_", "exp2", "expm1"), _EXPONENTIAL),
    **dict.fromkeys(("i0", "special_i0", "special_i1", "cosh", "sinh"), _BESSEL),
    **dict.fromkeys(("pow", "pow_"), _POWER),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _NO_TARGET),
    **dict.fromkeys(("var", "std", "var_mean"), _ONE_ROW),
}


def documented(facts: Mapping[str, Any]) -> Documented | None:
    """What is documented about the value of a reproduction, None if it may be a bug.

    Args:
        facts: the document ``made.json`` of a fault of an operation (not of compiled code, not of a rising loss).
    """
    if facts.get("backend") is not None:
        return None
    names = [_name(operation) for operation in facts["operations"]]
    known = [name for name in names if name in BY_OPERATION]
    if not known or not set(names) <= set(BY_OPERATION) | PLAIN:
        return None
    inputs = [OperandRange.from_json(one) for one in facts["inputs"]]
    if len(names) == 1 and not _outside(known[0], inputs, str(facts["produced"])):
        return None
    return BY_OPERATION[known[0]]


def _name(operation: str) -> str:
    """``aten.log.default`` is ``log``."""
    return operation.removeprefix("aten.").partition(".")[0]


def _outside(name: str, inputs: list[OperandRange], produced: str) -> bool:
    """Whether an input lies outside the domain of the operation."""
    known = BY_OPERATION[name]
    if known is _DIVISION:
        return produced != "NaN" or any(one.zeros for one in inputs)
    if known is _BESSEL:
        most = [(one, EXP_MAX.get(str(one.dtype).removeprefix("torch."))) for one in inputs]
        return any(_above(one.largest, limit) or _above(-(one.smallest or 0.0), limit) for one, limit in most)
    if known is _EXPONENTIAL:
        return any(_above(one.largest, EXP_MAX.get(str(one.dtype).removeprefix("torch."))) for one in inputs)
    if known in (_LOGARITHM, _ROOT, _POWER):
        least = -1.0 if name == "log1p" else 0.0
        return any(one.smallest is not None and one.smallest <= least for one in inputs)
    return True


def _above(value: float | None, most: float | None) -> bool:
    return value is not None and most is not None and value > most
