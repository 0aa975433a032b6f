"""Values beyond 65504, and numbers so small that float16 has only 0 for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import BFLOAT16, FLOAT32, LOSS_SCALE
from steadytrain.diagnosis.script_signs import made_in_preparation
from steadytrain.diagnosis.signs import (
    above,
    below,
    is_half,
    layer_of,
    listed,
    located,
    no_half,
    operation,
    quiet,
    ruled_out,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.core.incident import Located
    from steadytrain.experiments.case import Case


@final
class HalfPrecisionOverflow(Cause):
    """A value leaves the range of float16: more than 65504, or so small that it becomes 0.

    Means:
        float16 ends at 65504. A model whose weights were trained in bfloat16 or float32 may exceed that in one residual
        or feed-forward layer; training in float16 does when activations or the loss scale grow. Below 3e-8 a number
        becomes 0: an epsilon of 1e-8 guards no logarithm and no division. The test: the same step is finite in float32
        or bfloat16. If it is not, the run truly diverges.

    Causes:
        - a model trained in bfloat16 and run in float16 (T5, Gemma, SDXL's decoder: about 45 threads)
        - sums, squares or masks of -1e9 outside of autocast's float32 operations
        - activations that grow: no norm, a rate that is too high
        - a division by a difference, such as `1 - alpha`, of numbers that float16 rounds to the same

    Next:
        1. Train in bfloat16 if the device supports it.
        2. Else run the named operation in float32: `torch.autocast(enabled=False)` around it.
        3. Check the largest activation of the layers before it.
    """

    axis = "precision"
    base_rate = 45.0
    rivals = (
        "singular-operation",
        "gradient-underflow",
        "fully-masked-attention",
        "learning-rate-too-high",
        "bad-batch",
        "nonfinite-input",
        "loss-scale-disagreement",
        "optimizer-epsilon-underflow",
    )
    expects = like("half", either=("safe-operation", "drop-batch"))
    confirming = ("float32", "bfloat16")
    spared = ()
    interventions = (
        BFLOAT16,
        FLOAT32,
        LOSS_SCALE,
        Intervention(
            "float32-island",
            2,
            "float32 for the layer that is named",
            "float32-island",
            code='with torch.autocast("cuda", enabled=False): y = layer(x.float())',
        ),
    )
    grade = "A"
    source = "transformers #5651, #9295, #17978; OPT chronicles; DeepSpeed #697, #5426"

    def signature(self, case: Case) -> Signature:
        early = made_in_preparation(case)
        return Signature(
            (
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
                *listed(
                    case,
                    "half_overflow",
                    CERTAIN,
                    "results in float16 were Inf from finite inputs: {names}",
                    invariant=True,
                ),
                *when(" zeros" in early, -CERTAIN, f"it is no overflow: {early}", "fact singular_calls"),
                *operation(case, STRONG, "{operation} at {line} made it in float16", is_half),
                *operation(case, FAIR, f"{{operation}} at {{line}} {OF_SMALL}", _overflows),
                *operation(
                    case, -FAIR, "{operation} at {line} did not work in float16", lambda found: not is_half(found)
                ),
                *above(case, "half_peak", 0.5, FAIR, LARGEST),
                *(() if _is_of_small(case) else below(case, "half_peak", 0.05, -FAIR, LARGEST)),
                *symptom(case, FAIR, "loss-scale-collapse", "precision-headroom"),
                *ruled_out(no_half(case), "nothing is computed in float16"),
            ),
            layer=layer_of(case),
        )


LARGEST = "the largest value in float16 was {value} of what it holds"
OF_SMALL = "divided by a number that float16 hardly tells from 0"
SMALL_MAX = 1e-4
"""A quotient of usual numbers by less than this may exceed 65504. Epsilons lie below it."""

_AT_ZERO = ("div", "log", "reciprocal", "rsqrt")


def _overflows(found: Located) -> bool:
    """Whether a division overflowed because its divisor is small, without being 0."""
    divisor = next((one for one in found.inputs if one.name == "other"), None)
    if ".div." not in found.operation or found.produced != "inf" or divisor is None or divisor.zeros:
        return False
    ends = [abs(one) for one in (divisor.smallest, divisor.largest) if one is not None]
    return is_half(found) and min(ends, default=1.0) < SMALL_MAX


def _is_of_small(case: Case) -> bool:
    """Whether the first bad operation met a number in float16 that is 0 or nearly so: no value need be large for it."""
    found = located(case)
    return found is not None and is_half(found) and any(f".{one}." in found.operation for one in _AT_ZERO)
