"""Compiled code that computes something else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Signature
from steadytrain.diagnosis.interventions import EAGER, EXAMPLE
from steadytrain.diagnosis.signs import equivalence, fact, first_name, listed, measured, ruled_out, surveyed, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class CompiledCodeMismatch(Cause):
    """The compiled model gives different results than the same model uncompiled.

    Means:
        A compiler may round differently, by a few units in the last place, but must not change the result. If the
        symptom goes away in eager mode and by no other change, the generated code is at fault.

    Causes:
        - a fault in a lowering or a fusion of this version (pytorch #114109, #113180, #193061)
        - code that the compiler traced with a different value: a Python number, a flag, a random draw

    Next:
        1. Compare `eager`, `aot_eager` and `inductor` on the batch: the first that differs is at fault.
        2. Exclude the named layer from compilation.
        3. Try another version, and report the fault with the example that `steadytrain repro` writes.
    """

    axis = "precision"
    base_rate = 14.0
    rivals = ("custom-operation-fault", "hardware-fault")
    expects = like("kernel")
    confirming = ("eager",)
    spared = ("float32", "learning-rate-third")
    interventions = (EAGER, EXAMPLE)
    grade = "A"
    source = "pytorch #114109, #113180, #193061, #169082"

    def signature(self, case: Case) -> Signature:
        apart, rounding = measured(case, "compiled_difference"), measured(case, "compiled_rounding")
        told = f"compiled and eager differ by {apart:.3g} roundings on the same batch"
        differs = apart > FAR_ROUNDINGS and not apart < FAR_TIMES * rounding
        beside = f", eager and float64 by {rounding:.3g}" if math.isfinite(rounding) else ""
        return Signature(
            (
                *when(
                    differs and not math.isfinite(rounding),
                    STRONG,
                    told,
                    "fact compiled_difference",
                    compiled_difference=apart,
                ),
                *equivalence(
                    when(
                        differs and math.isfinite(rounding),
                        CERTAIN,
                        told + beside,
                        "fact compiled_difference",
                        invariant=True,
                        compiled_difference=apart,
                        compiled_rounding=rounding,
                    )
                ),
                *when(
                    apart < NEAR_ROUNDINGS or apart < NEAR_TIMES * rounding,
                    -STRONG,
                    told + beside,
                    "fact compiled_difference",
                    compiled_difference=apart,
                ),
                *listed(case, "compiled", HINT, "compiled: {names}"),
                *ruled_out(surveyed(case) and not fact(case, "compiled"), "nothing is compiled"),
            ),
            layer=first_name(case, "compiled"),
        )


FAR_ROUNDINGS, NEAR_ROUNDINGS = 100.0, 30.0
"""Difference in roundings of the output's dtype. Another summation order differs by some tens of them at most."""

FAR_TIMES, NEAR_TIMES = 10.0, 3.0
"""Difference relative to the model's own error against float64: TensorFloat-32 or 16 bits inside lose more than the
output's dtype.
"""
