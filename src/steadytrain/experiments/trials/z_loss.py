"""A term that holds the logits' scale."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class ZLoss(Trial):
    """A term that holds the logits' scale.

    Changes:
        1e-4 times the mean of (log of the sum of exp of the logits) squared is added to the cross-entropy.

    Tells:
        Output logits that drift together, which the loss does not see.

    Beware:
        Works over hundreds of steps.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("z-loss", {"weight": 1e-4}))
