"""The learning rate warmed up again, moments left as they are."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial

REWARM_STEPS = 10
"""As in the measured matrix, whose incident came ten steps after the snapshot; the control has the same."""


@final
class Rewarm(Trial):
    """The learning rate warmed up again, moments left as they are.

    Changes:
        The rate rises over some steps after the snapshot, and after the script has loaded a state of the optimizer.

    Tells:
        The control of reset-moments.

    Beware:
        A smaller rate for a while, which hides much.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("ramp-learning-rate", {"steps": REWARM_STEPS}))
