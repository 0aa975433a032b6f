"""The recorded steps with other random numbers inside the model."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class OtherSeed(Trial):
    """The recorded steps with other random numbers inside the model.

    Changes:
        Dropout and noise in the forward draw others; batches, order and initial state stay.

    Tells:
        Whether the symptom hangs on the luck of a dropout mask.

    Beware:
        A model that draws nothing is unchanged by it.
    """

    control = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("other-seed", {"seed": 1}))
