"""ReLU with a slope of a hundredth."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


@final
class LeakyUnits(Trial):
    """ReLU with a slope of a hundredth.

    Changes:
        relu becomes leaky_relu.

    Tells:
        Units that are dead and get no gradient.

    Beware:
        Another function.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("leaky-units"))
