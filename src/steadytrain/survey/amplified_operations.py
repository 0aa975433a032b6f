"""Operations of the script that suddenly make large finite numbers out of ordinary ones.

A divisor close to 0, an exponential or a power does it. The result of each such line is compared with what the same
line made in earlier surveyed steps: it must be far larger, and what went in must not be. A line that passes on large
numbers is thus left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

DIVIDES = frozenset({"div", "true_divide", "__truediv__", "div_", "__itruediv__"})
DIVIDES_BY_SELF = frozenset({"__rtruediv__", "reciprocal", "rsqrt"})
GROWS = frozenset({"exp", "expm1", "exp2", "pow", "__pow__", "cosh", "sinh", "i0", "i1", "erfcx"})
NAMES = DIVIDES | DIVIDES_BY_SELF | GROWS

JUMP_RATIO = 8.0
"""A result is far larger from this many times the largest of earlier steps on."""

USUAL_RATIO = 3.0
"""What went in is ordinary up to this many times the largest of earlier steps."""

EARLIER_STEPS_MIN = 3
AROUND_STEPS = 3
"""The steps before and after the onset that are compared: the loss may show a batch before its detector does."""

FIRST_STEPS, FADED_RATIO = 12, 0.01
"""A divisor that fades is compared with those of the first steps: it fell to this share of the smallest of them."""

LINES_MAX, FOUND_MAX = 256, 4


@dataclass
class _Made:
    """What a line made in one step, over all its calls there: largest absolute values of result and operand, the
    smallest and the middle one of the divisor, and its place in the order of the step."""

    result: float
    given: float
    divisor: float
    middle: float
    order: int
    before_model: bool


class AmplifiedOperations:
    """Reads the operations named in ``NAMES``; :meth:`found` compares the steps."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[tuple[str, str], _Made]] = {}

    def saw(
        self,
        name: str,
        args: Sequence[Any],
        given: Mapping[str, Any],
        result: Any,
        line: str,
        step: int,
        *,
        before_model: bool,
    ) -> None:
        """Reads a call at a line of the script in ``step``, and whether that step had called no model before."""
        made = self._steps.setdefault(step, {})
        key = (name, line)
        if name not in NAMES or (len(made) >= LINES_MAX and key not in made):
            return
        values = [*args, *(given[one] for one in ("other", "exponent") if one in given)]
        divisor = values[1] if name in DIVIDES and len(values) > 1 else values[0]
        divides = name in DIVIDES or name in DIVIDES_BY_SELF or _is_negative(values)
        operands = values[:1] if name in DIVIDES or not divides else []
        now = _Made(
            result=_largest(result),
            given=max((_largest(one) for one in operands), default=1.0),
            divisor=_smallest(divisor) if divides else math.nan,
            middle=_middle(divisor) if divides else math.nan,
            order=len(made),
            before_model=before_model,
        )
        if not math.isfinite(now.result) or not math.isfinite(now.given):
            return
        old = made.get(key)
        if old is not None:
            now = _Made(
                max(old.result, now.result),
                max(old.given, now.given),
                min(old.divisor, now.divisor),
                max(old.middle, now.middle),
                old.order,
                old.before_model and before_model,
            )
        made[key] = now

    def found(self, onset: int, has_own: Callable[[int], bool]) -> list[dict[str, Any]]:
        """The operations around the ``onset`` in order: ``{operation, line, step, result, before, divisor,
        divisor_before, divisor_usual, before_model}``.

        Args:
            has_own: whether the script's own preparation of a step made the inputs that its model got.
        """
        near = [step for step in sorted(self._steps) if abs(step - onset) <= AROUND_STEPS]
        for since in (math.inf, FIRST_STEPS):  # suddenly, or bit by bit since the first steps
            for step in near:
                found = sorted(self._in_step(step, since, has_own), key=lambda one: one[0])
                listed = [one for _, one in found if since == math.inf or _fell(one)]
                if listed:
                    return listed[:FOUND_MAX]
        return []

    def _in_step(self, step: int, since: float, has_own: Callable[[int], bool]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The operations of ``step`` whose results are far above those of the steps before it, up to ``since``."""
        for key, now in self._steps[step].items():
            before = [
                made[key]
                for other, made in self._steps.items()
                if other < step and other <= since and key in made and (not now.before_model or has_own(other))
            ]
            if len(before) < EARLIER_STEPS_MIN or (now.before_model and not has_own(step)):
                continue
            largest, given = max(one.result for one in before), max(one.given for one in before)
            if now.result <= JUMP_RATIO * largest or now.given > USUAL_RATIO * given or not largest:
                continue
            name, line = key
            found = {
                "operation": name.strip("_"),
                "line": line,
                "step": step,
                "result": now.result,
                "before": largest,
                "before_model": now.before_model,
            }
            if not math.isnan(now.divisor):
                found |= {"divisor": now.divisor, "divisor_before": min(one.divisor for one in before)}
                found |= {"divisor_usual": now.middle}
            yield now.order, found


def _fell(found: Mapping[str, Any]) -> bool:
    """Whether the divisor of an operation has faded."""
    return "divisor" in found and found["divisor"] <= FADED_RATIO * found["divisor_before"]


def _is_negative(values: Sequence[Any]) -> bool:
    """Whether the last operand is a negative number: the exponent of a power."""
    return len(values) > 1 and isinstance(values[1], (int, float)) and values[1] < 0


def _largest(value: Any) -> float:
    if isinstance(value, Tensor):
        return float(value.detach().abs().max()) if value.numel() and not value.is_complex() else math.nan
    return abs(float(value)) if isinstance(value, (int, float)) else math.nan


def _middle(value: Any) -> float:
    """The median of the absolute values that are not 0."""
    if isinstance(value, Tensor):
        away = value.detach().abs()
        away = away[away > 0]
        return float(away.float().median()) if away.numel() else math.nan
    return abs(float(value)) if isinstance(value, (int, float)) else math.nan


def _smallest(value: Any) -> float:
    """The smallest absolute value that is not 0: 0/0 and 1/0 are not finite, which is another matter."""
    if isinstance(value, Tensor):
        away = value.detach().abs()
        away = away[away > 0]
        return float(away.min()) if away.numel() and torch.isfinite(away).any() else math.nan
    return abs(float(value)) if isinstance(value, (int, float)) else math.nan
