"""The model in training mode in every step."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class TrainMode(Trial):
    """The model in training mode in every step.

    Changes:
        train() before the first forward of each step.

    Tells:
        A forgotten train() after an evaluation.

    Beware:
        Layers that were meant to be in eval mode are not.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("mode", {"mode": "train"}))
