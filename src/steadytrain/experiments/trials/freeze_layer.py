"""The suspect layer is not updated."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import elsewhere, on_another_layer, planned, suspect_module
from steadytrain.experiments.specs import Change, NotApplicable, Placebo, Spec
from steadytrain.experiments.trial import Trial


@final
class FreezeLayer(Trial):
    """The suspect layer is not updated.

    Changes:
        Gradients of the layer with the symptom are dropped before the update.

    Tells:
        Whether its own updates drive the symptom.

    Beware:
        Forward and backward still use it.
    """

    axis = "model"
    removes = "transient"
    either = "data rate moments state logits half kernel shift operation script"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        layer = suspect_module(case)
        if not layer:
            return NotApplicable("no layer is suspect")
        return planned(self, case, Change("freeze-layer", {"layers": [layer]}))

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        """The same on another layer."""
        other = elsewhere(case, suspect_module(case) or "")
        return on_another_layer(self, case, other, "freezing", Change("freeze-layer", {"layers": [other or ""]}))
