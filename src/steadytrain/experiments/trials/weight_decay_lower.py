"""A third of the weight decay."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class WeightDecayLower(Trial):
    """A third of the weight decay.

    Changes:
        Weight decay divided by 3 from the snapshot on.

    Tells:
        Decay that eats the weights.

    Beware:
        Takes hundreds of steps to show.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("weight-decay", {"factor": 1 / 3}))
