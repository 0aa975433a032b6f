"""Losses in float64."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Float64Loss(Trial):
    """Losses in float64.

    Changes:
        torch's loss functions compute in float64.

    Tells:
        A loss that loses its digits: large logits, sums over many tokens.

    Beware:
        Losses that the script writes out itself stay.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("float64-loss"))
