"""One module in float32."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import elsewhere, in_half, on_another_layer, planned, suspect_module
from steadytrain.experiments.specs import Change, NotApplicable, Placebo, Spec
from steadytrain.experiments.trial import Trial


@final
class Float32Island(Trial):
    """One module in float32.

    Changes:
        The module with the first bad operation computes in float32, all others as before.

    Tells:
        Where in the model 16 bits are not enough.

    Beware:
        The same as for float32.
    """

    axis = "precision"
    removes = "half transient"
    either = "logits"
    alike = "numerics"
    within_step = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        layer = suspect_module(case)
        if layer is None:
            return NotApplicable("no layer is suspect")
        if not in_half(case):
            return NotApplicable("everything is computed in float32 already")
        return planned(self, case, Change("float32-island", {"modules": [layer]}))

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        """The same on another layer."""
        tensor = elsewhere(case, suspect_module(case) or "")
        other = tensor.rpartition(".")[0] if tensor else None
        change = Change("float32-island", {"modules": [other or ""]})
        return on_another_layer(self, case, other, "float32 in", change)
