"""Layers that are one layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import not_finite, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class SharedLayers(Cause):
    """Layers that should have weights of their own are one layer.

    Means:
        A list that is multiplied holds one object many times. The model calls one layer over and over, or gives all
        heads the same weights: it has a fraction of the parameters that its depth says, and heads of several tasks pull
        one weight in all directions.

    Causes:
        - `[layer] * n` in a `ModuleList` or a `Sequential`
        - `[layer for _ in range(n)]` of a layer that was made before

    Next:
        1. Make a layer for each place: `[Block(dim) for _ in range(n)]`.
        2. Compare the number of parameters with the one that is expected.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("missing-activation", "learning-rate-too-low", "bad-initialization")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "own-layers",
            5,
            "make a layer for each place",
            code="self.blocks = nn.ModuleList([Block(dim) for _ in range(n)])",
        ),
    )
    grade = "A"
    source = "the documentation of Python on sequence types: items of a repeated list are not copied"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "shared-layers", invariant=True),
                *ruled_out(seen(case, "shared-layers") is None, "no list holds one layer many times"),
                *ruled_out(not_finite(case), "shared weights make nothing infinite", "symptoms"),
            )
        )
