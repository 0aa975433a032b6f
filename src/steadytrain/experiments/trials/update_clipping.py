"""Updates limited to the learning rate."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class UpdateClipping(Trial):
    """Updates limited to the learning rate.

    Changes:
        Each tensor's update is divided by the root mean square of (update / rate) where that is above 1.

    Tells:
        A second moment that lags behind grown gradients.

    Beware:
        Does nothing for optimizers that take no normalized step.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("clip-updates"))
