"""No update at all."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class LearningRateZero(Trial):
    """No update at all.

    Changes:
        The rate of every group is 0: forward and backward run, weights stay.

    Tells:
        Whether the symptom comes of training at all, or of the data alone: a loss that rises without updates is a
        shift.

    Beware:
        Statistics of batch normalization still move.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("learning-rate", {"factor": 0.0}))
