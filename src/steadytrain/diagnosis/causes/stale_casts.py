"""Copies of weights that autocast keeps over an update."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class StaleCasts(Cause):
    """One autocast context stays open over the updates, and its weight cache serves stale copies of the weights.

    Means:
        The forward has the weights of the first step in the context. Each gradient is taken there and applied to the
        weights of now, which drift away in one direction while the loss stands still.

    Causes:
        - an autocast context around the loop or a phase, and not around the forward of a step

    Next:
        1. Enter the context anew in each step, or give it `cache_enabled=False`.
        2. Evaluate in float32: a loss that is far above the one of the training shows the drift.
    """

    axis = "precision"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "learning-rate-too-high", "augmented-validation")
    expects = like("script", removed=("uncached-autocast",))
    confirming = ("uncached-autocast",)
    spared = ("drop-batch",)
    interventions = (
        Intervention(
            "uncached-autocast",
            3,
            "enter autocast in each step, around the forward and the loss",
            "uncached-autocast",
            code="with torch.autocast(...):  # in the loop, around the forward and the loss; or cache_enabled=False",
        ),
    )
    grade = "B"
    source = "torch.amp, on cache_enabled"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "stale-casts", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau", "validation-gap", "divergence", "lost-progress"),
                *ruled_out(seen(case, "stale-casts") is None, "no copy of a weight was older than the weight"),
            )
        )
