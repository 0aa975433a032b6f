"""A loss scale that is 256 times smaller."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class LossScaleDown(Trial):
    """A loss scale that is 256 times smaller.

    Changes:
        The gradient scaler's scale divided by 256, once.

    Tells:
        Overflow of the scaled gradients.

    Beware:
        The scaler raises it again.
    """

    axis = "precision"
    removes = "transient"
    either = "half"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.facts.get("scaler") is False:
            return NotApplicable("there is no gradient scaler")
        return planned(self, case, Change("loss-scale", {"factor": 1 / 256}))
