"""A third of the weight decay."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


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
