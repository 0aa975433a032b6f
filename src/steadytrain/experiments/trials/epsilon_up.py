"""A thousand times the optimizer's epsilon."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class EpsilonUp(Trial):
    """A thousand times the optimizer's epsilon.

    Changes:
        epsilon times 1000 from the snapshot on.

    Tells:
        Weights whose second moment is near nothing, so that noise is divided by epsilon alone.

    Beware:
        Slows all weights with small gradients.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("epsilon", {"factor": 1000.0}))
