"""A loss scale that is 256 times larger."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class LossScaleUp(Trial):
    """A loss scale that is 256 times larger.

    Changes:
        The gradient scaler's scale times 256, once.

    Tells:
        Gradients that underflow in float16.

    Beware:
        May overflow for a few steps, which the scaler skips.
    """

    axis = "precision"
    removes = "transient"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.facts.get("scaler") is False:
            return NotApplicable("there is no gradient scaler")
        return planned(self, case, Change("loss-scale", {"factor": 256.0}))
