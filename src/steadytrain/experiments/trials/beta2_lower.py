"""A second moment that forgets within ten steps."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Beta2Lower(Trial):
    """A second moment that forgets within ten steps.

    Changes:
        beta2 is 0.9 from the snapshot on.

    Tells:
        Moments: a second moment that lags or is stale. A learning rate that is too high does not answer to it.

    Beware:
        Noisier updates.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("beta2", {"value": 0.9}))
