"""The recorded steps with every weight nudged by one unit in the last place."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Perturbed(Trial):
    """The recorded steps with every weight nudged by one unit in the last place.

    Changes:
        The first element of each weight is the next number that its format has.

    Tells:
        How firm the symptom is: one that a single bit removes hangs on chance, and no trial of it proves much.

    Beware:
        A chaotic run comes apart within hundreds of steps; over some tens it should not.
    """

    control = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("one-ulp"))
