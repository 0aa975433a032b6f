"""Gradients cleared at the beginning of each step."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class ZeroGrad(Trial):
    """Gradients cleared at the beginning of each step.

    Changes:
        Before the first forward of a step all gradients are cleared.

    Tells:
        A missing zero_grad, which mimics a learning rate that is too high.

    Beware:
        None where the script clears them itself.
    """

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        return planned(self, case, Change("zero-gradients"))
