"""Clipping after the gradients are unscaled."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import planned
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial


@final
class UnscaleFirst(Trial):
    """Clipping after the gradients are unscaled.

    Changes:
        If the script clips gradients that are still scaled, the clipping moves to after the unscaling.

    Tells:
        A clip whose effective limit is its limit divided by the loss scale.

    Beware:
        None where the script unscales first.
    """

    axis = "harness"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        norm = case.typical("gradient_norm")
        return planned(self, case, Change("unscale-first", {"max_norm": max(norm or 1.0, 1e-6)}))
