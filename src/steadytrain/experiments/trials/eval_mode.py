"""The model in evaluation mode in every step."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class EvalMode(Trial):
    """The model in evaluation mode in every step.

    Changes:
        eval() before the first forward of each step.

    Tells:
        Dropout and statistics of the batch.

    Beware:
        Another function: no dropout, running statistics.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("mode", {"mode": "eval"}))
