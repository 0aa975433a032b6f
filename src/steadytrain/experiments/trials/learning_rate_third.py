"""A third of the learning rate."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class LearningRateThird(Trial):
    """A third of the learning rate.

    Changes:
        The rate of every group times 1/3 from the snapshot on.

    Tells:
        Little: what makes steps smaller hides nearly every instability (bad data, wrong moments, a jump of the rate).

    Beware:
        A mitigation and no proof. Slower progress is its price.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("learning-rate", {"factor": 1 / 3}))
