"""Probabilities turned back into logits before the cross-entropy."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class LossFromLogits(Trial):
    """Probabilities turned back into logits before the cross-entropy.

    Changes:
        A cross-entropy that gets probabilities gets their logarithm.

    Tells:
        A softmax before a loss that takes logits.

    Beware:
        None where the loss gets logits.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("loss-from-logits"))
