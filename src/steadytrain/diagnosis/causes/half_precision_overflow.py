"""Values beyond 65504."""

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
    no_half,
    operation,
    quiet,
    ruled_out,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class HalfPrecisionOverflow(Cause):
    """A value exceeds the range of float16.

    Means:
        float16 ends at 65504. A model whose weights were trained in bfloat16 or float32 may exceed that in one residual
        or feed-forward layer; training in float16 does when activations or the loss scale grow. The test: the same step
        is finite in float32 or bfloat16. If it is not, the run truly diverges.

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
    expects = like("half")
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
                *operation(
                    case, -FAIR, "{operation} at {line} did not work in float16", lambda found: not is_half(found)
                ),
                *above(case, "half_peak", 0.5, FAIR, "the largest value in float16 was {value} of what it holds"),
                *below(case, "half_peak", 0.05, -FAIR, "the largest value in float16 was {value} of what it holds"),
                *symptom(case, FAIR, "loss-scale-collapse", "precision-headroom"),
                *ruled_out(no_half(case), "nothing is computed in float16"),
            ),
            layer=layer_of(case),
        )
