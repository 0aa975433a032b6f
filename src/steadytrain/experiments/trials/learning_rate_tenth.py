"""A tenth of the learning rate."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class LearningRateTenth(Trial):
    """A tenth of the learning rate.

    Changes:
        The rate of every group times 0.1 from the snapshot on.

    Tells:
        A rate that is far too high; else as little as learning-rate-third.

    Beware:
        A mitigation and no proof.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("learning-rate", {"factor": 0.1}))
