"""No weight decay."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class WeightDecayNone(Trial):
    """No weight decay.

    Changes:
        Weight decay is 0 from the snapshot on.

    Tells:
        Decay that eats the weights, or has the wrong sign.

    Beware:
        Takes some steps to show.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("weight-decay", {"factor": 0.0}))
