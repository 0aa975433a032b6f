"""Rows that are masked as a whole give zeros."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class SafeSoftmax(Trial):
    """Rows that are masked as a whole give zeros.

    Changes:
        A softmax over nothing but minus infinity gives zeros and no gradient.

    Tells:
        Fully masked attention rows.

    Beware:
        None: it is the same where no row is masked as a whole.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("safe-softmax"))
