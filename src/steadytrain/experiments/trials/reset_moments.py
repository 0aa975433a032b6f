"""Moments cleared, and the learning rate warmed up again."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import REWARM_STEPS, planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class ResetMoments(Trial):
    """Moments cleared, and the learning rate warmed up again.

    Changes:
        First and second moments are zero at the snapshot, counters too, and again where the script loads a state; the
        rate rises over some steps each time.

    Tells:
        Moments that are stale, permuted or lag behind, if its control (rewarm) does not remove the symptom as well.

    Beware:
        The re-warm alone hides a bad batch: never without rewarm beside it.
    """

    removes = "moments state transient"
    either = "data rate operation"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.begin is None:
            return NotApplicable("from the script's own beginning the moments are empty anyway")
        return planned(self, case, Change("reset-moments"), Change("ramp-learning-rate", {"steps": REWARM_STEPS}))
