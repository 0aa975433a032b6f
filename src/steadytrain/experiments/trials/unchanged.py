"""The recorded steps once more, with nothing changed."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Unchanged(Trial):
    """The recorded steps once more, nothing changed.

    Changes:
        Nothing: the same state, batches, random numbers and hyper-parameters, from the snapshot on.

    Tells:
        Whether the symptom comes again at all. Where it does not, no other trial proves anything: a transient fault of
        the hardware, or something that is neither recorded nor repeatable.

    Beware:
        A script that decides by its own counters does so only where it made its steps before by itself.
    """

    control = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case)
