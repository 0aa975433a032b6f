"""Moments cleared, and the learning rate warmed up again."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import REWARM_STEPS, planned
from steadytrain.experiments.specs import Change, NotApplicable, Placebo, Spec
from steadytrain.experiments.trial import Trial


@final
class ResetMoments(Trial):
    """Moments cleared, and the learning rate warmed up again.

    Changes:
        First and second moments and step counters are set to zero at the snapshot, and again where the script loads a
        state; each time the rate warms up over some steps.

    Tells:
        Moments that are stale, permuted or lagging, if the control (rewarm) does not remove the symptom, too.

    Beware:
        The warm-up alone hides a bad batch: always compare with rewarm.
    """

    axis = "optimizer"
    removes = "moments state transient"
    either = "data rate operation"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.begin is None:
            return NotApplicable("from the script's own beginning the moments are empty anyway")
        return planned(self, case, Change("reset-moments"), Change("ramp-learning-rate", {"steps": REWARM_STEPS}))

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        """The warm-up alone."""
        made = planned(self, case, Change("ramp-learning-rate", {"steps": REWARM_STEPS}))
        if isinstance(made, NotApplicable):
            return None
        return Placebo("the warm-up alone", tuple(replace(one, trial="rewarm") for one in made))
