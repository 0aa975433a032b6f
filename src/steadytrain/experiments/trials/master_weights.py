"""Weights kept in float32 beside those of 16 bits."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class MasterWeights(Trial):
    """Weights kept in float32 beside those of 16 bits.

    Changes:
        The optimizer works on float32 copies; the model sees them rounded.

    Tells:
        Updates that are lost by rounding.

    Beware:
        As float32, but for weights only.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("master-weights"))
