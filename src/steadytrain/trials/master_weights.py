"""Weights kept in float32 beside those of 16 bits."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


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
