"""Losses that are kept with their graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class KeptGraphs(Cause):
    """A sum or a list keeps the losses of all steps with their graphs, and memory grows.

    Means:
        A graph lives as long as a tensor that was made by it. The sum of all losses holds those of all steps. Training
        is right, and becomes slower until memory ends.

    Causes:
        - `total += loss` or `losses.append(loss)` without `item()` or `detach()`

    Next:
        1. Keep `loss.item()`, or `loss.detach()`.
    """

    axis = "harness"
    base_rate = 1.0
    rivals = ()
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention("keep-numbers", 5, "keep the number of the loss, not its graph", code="total += loss.item()"),
    )
    grade = "B"
    source = "FAQ of PyTorch on accumulated history"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "kept-graphs", invariant=True),
                *ruled_out(seen(case, "kept-graphs") is None, "no sum or list of losses with their graphs was found"),
            )
        )
