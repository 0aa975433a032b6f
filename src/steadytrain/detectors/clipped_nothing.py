"""The script clips the gradients of no parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ClippedNothing(ScriptRule):
    """Gradients are not clipped: the clip was given no parameters.

    Means:
        `clip_grad_norm_` or `clip_grad_value_` was called with an empty collection. Torch does nothing then, and does
        not say so. `filter`, `map`, a generator expression and `model.parameters()` give their parameters once. If the
        optimizer, a count of the parameters or the first step has used them up, nothing is left for the clip: large
        gradients go through, and the bound that the script sets has no effect.

    Causes:
        - `params = filter(lambda p: p.requires_grad, model.parameters())`, which the optimizer uses up
        - `params = model.parameters()`, kept and used in each step
        - a list of parameters that is filled after it was handed on, or chosen by a name that no parameter has

    Next:
        1. Keep a list: `params = [p for p in model.parameters() if p.requires_grad]`.
        2. Print the norm that the clip returns: it is 0 for no parameters.
    """

    states_fact: ClassVar[bool] = True
    looks_min: int = threshold(2, "looks that find it: a part of a model may get its first parameters later")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"clip_grad_norm_ or clip_grad_value_ was given no parameters in {row.last:.0f} of the steps that were "
                "looked at, so nothing is clipped; an iterator (filter, map, model.parameters()) gives its parameters "
                "once: keep a list of them",
                looks=row.last,
            )
            for row in script_rows(window, "clipped-nothing")
            if row.last >= self.looks_min
        )
