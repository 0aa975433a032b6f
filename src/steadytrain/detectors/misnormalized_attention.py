"""Attention weights sum to one over the queries, or each alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import ScriptRow, script_rows


@final
@dataclass(frozen=True)
class MisnormalizedAttention(ScriptRule):
    """Attention takes softmax over another dimension than the keys.

    Means:
        The graph of the loss has a softmax of scores [..., places, places], and the product after it sums over a
        dimension that the softmax did not normalise. The weights of one query then do not sum to one: outputs shrink or
        grow with the length. It is a warning if the attention is causal: then a place also depends on later places,
        through the sums. Otherwise it is a note, because some designs let queries compete on purpose. It is a warning,
        too, if a layer with one unit gives the scores of the places, [..., places, 1], and the softmax goes over the
        last dimension: every weight is 1, and the layers that score get no gradient.

    Causes:
        - `softmax(dim=-2)` or `softmax(dim=1)` where the keys are the last dimension
        - `softmax(dim=-1)` of scores [rows, places, 1]: `dim=1` is meant, or a `squeeze(-1)` before it
        - `softmax()` without `dim`, which takes dimension 0 or 1
        - scores that were transposed (keys by queries) without their softmax
        - no fault: attention in which places compete for the queries, as in slot attention

    Next:
        1. Sum the weights over the last dimension: each sum has to be 1.
        2. Use `softmax(dim=-1)` on scores [..., queries, keys], or `scaled_dot_product_attention`.
    """

    looks_min: int = threshold(2, "looks that find it: the model computes its attention in the same way each time")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        alone = self._found(window, "weights-of-one")
        if alone is not None:
            said = (
                f"the softmax over the scores of {alone.last:.0f} places, behind the loss of {alone.place}, goes over "
                "a dimension of size 1: all attention weights are 1, and the layers that score get no gradient"
            )
            return (self.warning(window, alone, said, places=alone.last),)
        causal = self._found(window, "causal-attention-dimension")
        found = causal or self._found(window, "attention-dimension")
        if found is None:
            return ()
        kind = "attention" if causal is None else "causal attention"
        which = f"one {kind}" if found.last == 1.0 else f"{found.last:.0f} {kind}s"
        takes = "takes" if found.last == 1.0 else "take"
        return (
            Symptom(
                name="misnormalized-attention",
                severity="note" if causal is None else "warning",
                first_step=int(found.steps[0]),
                last_step=int(window.steps[-1]),
                message=f"{which} behind the loss of {found.place} {takes} softmax over another dimension than "
                "the keys",
                signals=("script.value",),
                numbers={"attentions": found.last},
            ),
        )

    def _found(self, window: Window, measure: str) -> ScriptRow | None:
        rows = [one for one in script_rows(window, measure) if len(one.steps) >= self.looks_min]
        return min(rows, key=lambda one: int(one.steps[0])) if rows else None
