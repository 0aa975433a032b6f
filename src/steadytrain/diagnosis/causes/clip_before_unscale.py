"""Clipping at the wrong moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import below, fact, holds, ruled_out, seen, surveyed, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ClipBeforeUnscale(Cause):
    """Gradients are clipped while they are still scaled, or before there are any.

    Means:
        With a scale of 65536 every norm is above the bound, so after unscaling every gradient has the tiny norm of
        bound over scale: the model learns nothing. Clipping before backward, or after the update, has no effect.

    Causes:
        - `clip_grad_norm_` without `scaler.unscale_(optimizer)` before it
        - clipping in a function that is called before backward (nano-world-model PR 22, Lightning #9694)

    Next:
        1. `scaler.scale(loss).backward()`, `scaler.unscale_(optimizer)`, clip, `scaler.step(optimizer)`.
        2. Print the norm that clipping returns: it must equal that of training without a scaler.
        3. Count how often the coefficient is below 1.
    """

    axis = "optimizer"
    base_rate = 10.0
    rivals = ("learning-rate-too-high", "loss-scale-disagreement", "scheduler-misstep")
    expects = like(
        "script",
        removed=("unscale-first", "clip"),
        either=("float32", "drop-batch", "fresh-data", "reorder", "perturbed", "other-seed"),  # what is not clipped
    )
    confirming = ("unscale-first", "clip")
    spared = ("drop-batch",)
    interventions = (
        Intervention(
            "unscale-first",
            3,
            "unscale gradients before they are clipped",
            "unscale-first",
            code="scaler.unscale_(optimizer)  # before clip_grad_norm_",
            of=("clip_before_unscale", "clip_coefficient", "clipped-while-scaled"),
        ),
        Intervention(
            "clip-after-backward",
            4,
            "clip after the backward and before the update",
            code="loss.backward(); clip_grad_norm_(model.parameters(), 1.0); optimizer.step()",
            of=("clip_before_backward", "clipped-after-step"),
        ),
    )
    grade = "A"
    source = "Lightning #9694, #9330, #9599; nano-world-model PR 22; fairseq #4555"

    def signature(self, case: Case) -> Signature:
        scaled = fact(case, "clip_before_unscale") is True or seen(case, "clipped-while-scaled") is not None
        return Signature(
            (
                *holds(
                    case,
                    "clip_before_unscale",
                    CERTAIN,
                    "gradients were clipped while the loss scale was on them",
                    invariant=True,
                ),
                *holds(
                    case,
                    "clip_before_backward",
                    CERTAIN,
                    "clipping saw no gradient of its step: it runs before the backward or after the update, and has no "
                    "effect",
                    invariant=True,
                ),
                *below(
                    case, "clip_coefficient", 1e-3, FAIR, "clipping multiplies gradients by {value} in the usual step"
                ),
                *symptom(case, CERTAIN, "clipped-while-scaled", invariant=True),
                *symptom(case, CERTAIN, "clipped-after-step", invariant=True),
                *ruled_out(
                    surveyed(case)
                    and fact(case, "clipped") is not True
                    and fact(case, "clip_before_backward") is not True,
                    "gradients are not clipped",
                ),
                *ruled_out(
                    fact(case, "clip_before_unscale") is False and fact(case, "clip_before_backward") is not True,
                    "gradients were clipped at the right moment",
                ),
            ),
            axis="precision" if scaled else "",
        )
