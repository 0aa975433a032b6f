"""Data loaders without workers, from the script's own beginning."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import from_the_beginning
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class OneWorker(Trial):
    """Data loaders without workers, from the script's own beginning.

    Changes:
        Batches are fetched in the training process; the script's own batches, nothing from the tape.

    Tells:
        Faults that workers bring: the same random numbers in each, an order that comes and goes.

    Beware:
        Other batches than those recorded.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return from_the_beginning(self, case, Change("one-worker"))
