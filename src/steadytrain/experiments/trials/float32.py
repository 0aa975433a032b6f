"""Everything in float32."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import in_half, planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Float32(Trial):
    """Everything in float32.

    Changes:
        No autocast; weights, moments and inputs of 16 bits are widened.

    Tells:
        Overflow, underflow or lost updates of 16 bits.

    Beware:
        Kernels, speed and rounding change, too.
    """

    axis = "precision"
    removes = "half transient"
    either = "logits kernel"
    alike = "numerics"
    within_step = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if not in_half(case):
            return NotApplicable("everything is computed in float32 already")
        return planned(self, case, Change("float32"))
