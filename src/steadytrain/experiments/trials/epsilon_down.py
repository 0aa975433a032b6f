"""A thousandth of the optimizer's epsilon."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class EpsilonDown(Trial):
    """A thousandth of the optimizer's epsilon.

    Changes:
        epsilon divided by 1000 from the snapshot on.

    Tells:
        An epsilon that stands above the second moments and so stops learning.

    Beware:
        In 16 bits a small epsilon is zero.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("epsilon", {"factor": 0.001}))
