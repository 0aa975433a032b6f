"""The accumulated gradient divided by its number of micro-batches."""

from __future__ import annotations

from typing import final

from steadytrain.trials.case import Case
from steadytrain.trials.contract import Change, NotApplicable, Spec, Trial
from steadytrain.trials.planning import planned


@final
class AccumulationMean(Trial):
    """The accumulated gradient divided by its number of micro-batches.

    Changes:
        At the gate every gradient is divided by the number of calls.

    Tells:
        A missing division by the number of micro-batches.

    Beware:
        Under Adam the scale of a gradient matters little.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("accumulation-mean"))
