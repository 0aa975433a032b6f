"""Ten times the learning rate."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class LearningRateUp(Trial):
    """Ten times the learning rate.

    Changes:
        The rate of every group times 10 from the snapshot on.

    Tells:
        A rate that is too low: the run learns at ten times its rate and did not before.

    Beware:
        Makes every instability worse.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("learning-rate", {"factor": 10.0}))
