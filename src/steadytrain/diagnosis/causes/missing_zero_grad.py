"""Gradients that are never cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.script_signs import trains_another_model
from steadytrain.diagnosis.signs import below, fact, holds, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class MissingZeroGrad(Cause):
    """Gradients of earlier steps are still there when the next backward adds its own.

    Means:
        The gradient is the sum of all gradients since it was last cleared, so steps grow and follow old directions. It
        looks like a learning rate that is too high, and a lower rate hides it for a while. Clearing gradients at each
        step removes the symptom; no other change does.

    Causes:
        - no `zero_grad`, or one on another optimizer or on the model before it was wrapped
        - `zero_grad` between backward and step, or under a condition that is never true
        - one `zero_grad` for two optimizers, so that a GAN's generator leaves a gradient in its discriminator
        - an engine that keeps gradients (DeepSpeed PR 7839)

    Next:
        1. Call `optimizer.zero_grad()` before the backward of each step.
        2. With accumulation: once per update, not per micro-batch.
        3. Check that the gradient norm does not grow while the loss stays constant.
    """

    axis = "optimizer"
    base_rate = 4.0
    rivals = ("learning-rate-too-high",)
    expects = like("script", removed=("zero-grad",), either=("synthetic-batch", "longer-warmup"))
    confirming = ("zero-grad",)
    spared = ("drop-batch",)
    interventions = (
        Intervention(
            "zero-grad",
            5,
            "clear the gradients before each backward",
            "zero-grad",
            code="optimizer.zero_grad(set_to_none=True)  # before backward",
        ),
    )
    grade = "A"
    source = "DINO #20; DeepSpeed PR 7839, #7837"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *holds(
                    case,
                    "gradients_carried_over",
                    CERTAIN,
                    "gradients that an update had used were there at the next backward",
                    invariant=True,
                ),
                *below(case, "zero_grad_calls", 0.5, FAIR, "zero_grad is called {value} times an update"),
                *symptom(case, CERTAIN, "gradients-carried-over", invariant=True),
                *symptom(case, CERTAIN, "foreign-gradients", invariant=True),
                *symptom(case, HINT, "divergence", "exploding-gradients", "oscillation"),
                *ruled_out(
                    fact(case, "gradients_carried_over") is False and seen(case, "foreign-gradients") is None,
                    "gradients are cleared after each update",
                ),
                *ruled_out(
                    trains_another_model(case),
                    "the gradients that stay belong to a model that no loss reaches any more",
                    "symptoms",
                ),
            ),
        )
