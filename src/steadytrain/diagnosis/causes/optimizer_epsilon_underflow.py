"""An epsilon that is zero, that is far too small, or that rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Signature
from steadytrain.diagnosis.interventions import EPSILON_DOWN, EPSILON_UP, FLOAT32
from steadytrain.diagnosis.signs import (
    above,
    fact,
    holds,
    measured,
    not_finite,
    quiet,
    ruled_out,
    surveyed,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class OptimizerEpsilonUnderflow(Cause):
    """The optimizer's epsilon is too small or rounds to zero, or is larger than the root of the second moment.

    Means:
        Adam divides by `sqrt(v) + eps`. In float16 1e-8 is zero, so a weight whose gradient was always zero divides
        zero by zero: NaN after one step. An epsilon that is far too small does the same more slowly: squares of small
        gradients round to zero, and at a gradient of 1e-24 and an epsilon of 1e-30 a weight moves by a million times
        the rate, whatever the batch. The opposite is silent: if gradients fall below epsilon, updates shrink with them
        and the layers stop learning.

    Causes:
        - `eps=1e-30`, and an input channel or a unit that is all but silent
        - `eps=0`, and a weight without a gradient: an embedding row that no batch has used yet
        - optimizer state or weights in float16 with `eps=1e-8` (openai/CLIP #40: NaN after one step)
        - gradients that shrink with width, depth or a large divisor of the loss (2309.14322)

    Next:
        1. float32 for the optimizer's state; if that is impossible, `eps=1e-4`.
        2. In float32 and with tiny gradients: `eps=1e-15`.
        3. Compare the root of the second moment with epsilon, layer by layer.
    """

    axis = "optimizer"
    base_rate = 5.0
    rivals = ("half-precision-overflow", "singular-operation", "learning-rate-too-low", "second-moment-lag")
    expects = like("half", removed=("epsilon-up", "epsilon-down"), either=("all-safe",))
    confirming = ("epsilon-up", "epsilon-down")
    spared = ("learning-rate-third",)
    interventions = (EPSILON_UP, EPSILON_DOWN, FLOAT32)
    grade = "A"
    source = "2309.14322; openai/CLIP #40; pytorch #8860; optax #1754"

    def signature(self, case: Case) -> Signature:
        zero = fact(case, "epsilon") == 0.0 and not_finite(case)
        name, times = _faded(case)
        return Signature(
            (
                *when(
                    zero,
                    CERTAIN,
                    "epsilon is 0: a weight whose gradient was always zero divides zero by zero",
                    "fact epsilon",
                    invariant=True,
                ),
                *holds(
                    case,
                    "epsilon_lost",
                    CERTAIN,
                    f"epsilon is zero in the precision of the second moment{_format(case)}",
                    invariant=True,
                ),
                *when(
                    bool(name),
                    2 * CERTAIN,
                    f"epsilon is {measured(case, 'epsilon'):.3g}{_rounded(case)}: weights of {name} whose second "
                    f"moment is zero move by {times:.3g} times the learning rate, where Adam's bound is about 3",
                    "fact update_beyond_rate",
                    invariant=True,
                    times=times,
                ),
                *above(
                    case,
                    "second_moment_below_epsilon",
                    0.9,
                    STRONG,
                    "for {value} of the weights epsilon is ten times the root of the second moment",
                ),
                *above(case, "epsilon", 1e-5, HINT, "epsilon is {value}"),
                *symptom(case, FAIR, "nonfinite-optimizer-state", "nonfinite-weight"),
                *ruled_out(
                    not measured(case, "second_moment_below_epsilon") > 0.8
                    and fact(case, "epsilon_lost") is not True
                    and not zero
                    and not name
                    and surveyed(case),
                    "epsilon is neither lost nor large against the second moment",
                ),
                *ruled_out(surveyed(case) and fact(case, "epsilon") is None, "the optimizer has no epsilon"),
            ),
        )


SMALLEST_HALF = 2.0**-25
"""What is at most half of the smallest number of float16 rounds to 0 there."""


def _is_half(case: Case) -> bool:
    formats = fact(case, "state_dtypes")
    return isinstance(formats, Mapping) and any("float16" in str(one) and "bfloat16" not in str(one) for one in formats)


def _format(case: Case) -> str:
    return ", float16" if _is_half(case) else ""


def _rounded(case: Case) -> str:
    """That float16, the format of the weights and moments, has no such number."""
    is_lost = _is_half(case) and 0 < measured(case, "epsilon") <= SMALLEST_HALF
    return ", which float16, the format of the moments, rounds to 0" if is_lost else ""


def _faded(case: Case) -> tuple[str, float]:
    """The tensor with the longest update beyond the learning rate and its length in rates; "" and 0 without one. Second
    moments that a loaded state had lost are another cause."""
    found, loaded = fact(case, "update_beyond_rate"), fact(case, "state_loaded_optimizer") is True
    if not isinstance(found, Mapping) or not found or quiet(case) or loaded:
        return "", 0.0
    name, times = max(found.items(), key=lambda one: float(one[1]))
    return str(name), float(times)
