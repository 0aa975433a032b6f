"""Frozen parameters of the optimizer get gradients."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class Thaw(Trial):
    """Frozen parameters of the optimizer get gradients.

    Changes:
        requires_grad is True for every parameter that the optimizer holds.

    Tells:
        Parameters that stay frozen by mistake.

    Beware:
        What was frozen on purpose is trained as well.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("thaw"))
