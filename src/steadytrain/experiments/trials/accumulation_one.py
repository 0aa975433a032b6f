"""One micro-batch a step."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class AccumulationOne(Trial):
    """One micro-batch a step.

    Changes:
        Of an accumulated step only the first micro-batch counts, its gradient times their number.

    Tells:
        Accumulation that sums where it should average, or mixes micro-batches.

    Beware:
        Noisier gradients. Right where the script divides by the number of micro-batches.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("accumulation-one"))
