"""Half of the rows of each batch."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class SmallerBatch(Trial):
    """Half of the rows of each batch.

    Changes:
        Only the first half of the rows that loaders give.

    Tells:
        Rows in the second half; memory; losses that hang on the number of rows.

    Beware:
        Noisier gradients.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("smaller-batch", {"divisor": 2}))
