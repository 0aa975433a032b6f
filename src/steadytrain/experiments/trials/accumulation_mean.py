"""The accumulated gradient divided by its number of micro-batches."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


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
