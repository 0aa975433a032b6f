"""The learning rate that stood before the onset."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class ConstantLearningRate(Trial):
    """The learning rate that stood before the onset.

    Changes:
        The rate is constant: its median over the recorded steps before the onset.

    Tells:
        A schedule that changed the rate wrongly.

    Beware:
        No effect on a constant rate.
    """

    axis = "optimizer"
    removes = "transient"
    either = "rate"
    rate_only = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        rate = case.typical("learning_rate")
        if rate is None or rate <= 0:
            return NotApplicable("the learning rate before the onset is not known")
        return planned(self, case, Change("fixed-learning-rate", {"value": rate}))
