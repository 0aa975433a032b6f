"""ReLU with a slope of a hundredth."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


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
