"""Rare long gradients that nothing limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import FAIR, HINT, STRONG, Cause, Signature
from steadytrain.diagnosis.interventions import CLIP_USUAL, LOWER_RATE
from steadytrain.diagnosis.signs import (
    LEADS,
    burst_of_gradient,
    fact,
    fails,
    layer_of,
    quiet,
    ruled_out,
    surveyed,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UnclippedGradients(Cause):
    """Gradients become far longer than usual for a moment, and nothing clips them.

    Means:
        The loss of recurrent, deep and multiplicative models has cliffs: near one the gradient is a hundred times its
        usual norm, whatever the batch, and one unlimited step throws the weights far away. It contributes where the
        rate is at its limit: clipping at the usual norm mends it and leaves usual steps as they are, and a lower rate
        mends it as well, but makes every step shorter.

    Causes:
        - a loop without `clip_grad_norm_` for a recurrent net, a transformer or a policy gradient
        - a limit far above the usual norm, so that it never acts
        - clipping on another set of parameters than those that the optimizer holds

    Next:
        1. Clip the global norm at what nine in ten steps have, between backward and the update.
        2. Count how often it acts: some percent of the steps is usual; if it acts in most, lower the rate.
        3. If one batch alone does it, read that batch.
    """

    axis = "optimizer"
    base_rate = 6.0
    rivals = ("learning-rate-too-high", "bad-batch", "bad-initialization")
    expects = like(
        "rate",
        removed=("clip-usual", "clip"),
        either=("learning-rate-third", "learning-rate-tenth", "longer-warmup", "constant-learning-rate", "perturbed"),
    )
    confirming = ("clip-usual",)
    spared = ("drop-batch", "fresh-data", "float32")
    interventions = (CLIP_USUAL, LOWER_RATE)
    grade = "A"
    source = "Pascanu and others 1211.5063; Zhang and others 1905.11881 on clipping; PyTorch's word_language_model"

    def signature(self, case: Case) -> Signature:
        burst, lead = burst_of_gradient(case)
        return Signature(
            (
                *when(
                    burst > FAR_BURST,
                    STRONG,
                    f"the gradient norm leapt to {burst:.3g} times that of nine in ten steps before",
                    "window gradient_norm",
                    burst=burst,
                ),
                *when(
                    BURST < burst <= FAR_BURST,
                    HINT,
                    f"the gradient norm rose to {burst:.3g} times that of nine in ten steps before",
                    "window gradient_norm",
                    burst=burst,
                ),
                *when(
                    lead > LEADS,
                    FAIR,
                    f"it leapt before the loss did, {lead:.2g} times as far",
                    "window gradient_norm",
                    lead=lead,
                ),
                *fails(case, "clipped", HINT, "nothing clips the gradients"),
                *symptom(case, FAIR, "exploding-gradients", "gradient-norm-spike"),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
                *ruled_out(surveyed(case) and fact(case, "clipped") is True, "the gradients are clipped"),
                *when(
                    burst <= BURST, -STRONG, "no gradient was longer than usual", "window gradient_norm", burst=burst
                ),
            ),
            layer=layer_of(case),
        )


BURST, FAR_BURST = 3.0, 10.0
"""Healthy gradients vary threefold; ten times the ninetieth percentile is a leap."""
