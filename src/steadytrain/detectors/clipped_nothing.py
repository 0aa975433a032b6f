"""The script clips the gradients of no parameters, or of some of them."""

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
        gradients go through, and the bound that the script sets has no effect. A clip that is given only some of the
        parameters that the optimizer updates is a note: a large gradient of the others goes through.

    Causes:
        - `params = filter(lambda p: p.requires_grad, model.parameters())`, which the optimizer uses up
        - `params = model.parameters()`, kept and used in each step
        - the clip of one module's parameters, `clip_grad_norm_(model.head.parameters(), 1.0)`
        - a list of parameters that is filled after it was handed on, or chosen by a name that no parameter has

    Next:
        1. Keep a list: `params = [p for p in model.parameters() if p.requires_grad]`.
        2. Print the norm that the clip returns: it is 0 for no parameters.
    """

    states_fact: ClassVar[bool] = True
    parts_min: int = threshold(4, "looks that find parameters without a clip: some steps may train a part only")
    looks_min: int = threshold(2, "looks that find it: a part of a model may get its first parameters later")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return self._of_none(window) or self._of_some(window)

    def _of_some(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            Symptom(
                name="clipped-nothing",
                severity="note",
                first_step=int(row.steps[0]),
                last_step=int(row.steps[-1]),
                message=f"the clip of gradients leaves out {row.last:.0%} of the parameters that are trained "
                f"({row.place} first)",
                signals=("script.value",),
                tensors=(row.place,),
                numbers={"share_left_out": row.last},
            )
            for row in script_rows(window, "unclipped")[:1]
            if len(row.steps) >= self.parts_min
        )

    def _of_none(self, window: Window) -> tuple[Symptom, ...]:
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
