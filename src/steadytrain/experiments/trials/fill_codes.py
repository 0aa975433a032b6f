"""Codes for missing values filled with the median."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class FillCodes(Trial):
    """Codes for missing values filled with the median.

    Changes:
        A value that stands at several places of a floating-point tensor, ten times beyond all others, becomes the
        median of the others in inputs of the model. In targets of squared and absolute errors it counts for nothing.

    Tells:
        Codes such as -999 that are fed as if they were measured.

    Beware:
        A median is no measurement: a mask that the model is given says what was missing.
    """

    axis = "data"
    either = "data shift operation half transient"
    own_scale = True
    within_step = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if not case.facts.get("missing_codes"):
            return NotApplicable("no value is repeated far beyond all others, or no survey ran")
        return planned(self, case, Change("fill-codes"))
