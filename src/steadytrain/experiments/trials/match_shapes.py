"""Targets in the shape of the predictions."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class MatchShapes(Trial):
    """Targets in the shape of the predictions.

    Changes:
        A loss whose target would be broadcast gets it reshaped.

    Tells:
        [N] against [N, 1].

    Beware:
        None where the shapes agree.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("match-shapes"))
