"""Targets of regression a tenth as large."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class ScaleTargets(Trial):
    """Targets of regression a tenth as large.

    Changes:
        Targets of regression losses times 0.1.

    Tells:
        Targets out of the model's reach.

    Beware:
        Another problem: the loss is smaller anyway; judged on the probes.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("scale-targets", {"factor": 0.1}))
