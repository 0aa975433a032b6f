"""Every parameter of the model is trained."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class OptimizeAll(Trial):
    """Every parameter of the model is trained.

    Changes:
        Frozen parameters get gradients; those that the optimizer lacks are added to its first group.

    Tells:
        Parameters that were left out by mistake.

    Beware:
        What was frozen on purpose is trained as well.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("optimize-all"))
