"""Rows normalized by themselves in the place of batch normalization."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class LayerNorm(Trial):
    """Rows normalized by themselves in the place of batch normalization.

    Changes:
        Batch normalization becomes a normalization of each row, same scale and shift.

    Tells:
        Statistics of the batch: batches of one row, mixed sources, train against eval.

    Beware:
        Another function: the loss may jump at first.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("layer-norm"))
