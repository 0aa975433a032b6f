"""Rare long gradients that nothing limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import CLIP_USUAL, LOWER_RATE
from steadytrain.diagnosis.row_signs import long_rows
from steadytrain.diagnosis.script_signs import sinks_without_bound
from steadytrain.diagnosis.signs import (
    LEADS,
    above,
    burst_of_gradient,
    fact,
    fails,
    jump_of_rate,
    layer_of,
    noted,
    quiet,
    ruled_out,
    surveyed,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trial_tables.updates import RATE_CUTS

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
        - a rare batch of long rows, valid as it is, through a net that is stable over the usual length
        - a limit far above the usual norm, so that it never acts
        - clipping on another set of parameters than those that the optimizer holds, or on an iterator that is used up

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
        persists=("old-settings",),
        either=(
            *RATE_CUTS,
            "longer-warmup",
            "constant-learning-rate",
            "perturbed",
            "drop-batch",
            "fresh-data",
        ),
    )
    confirming = ("clip-usual",)
    spared = ("drop-batch", "fresh-data", "float32")
    interventions = (
        Intervention(
            "clip-all-parameters",
            3,
            "give the clip a list of the parameters, not an iterator that is used up",
            code="params = [p for p in model.parameters() if p.requires_grad]  # for the optimizer and the clip",
            of=("clipped-nothing",),
        ),
        CLIP_USUAL,
        LOWER_RATE,
    )
    grade = "A"
    source = "Pascanu and others 1211.5063; Zhang and others 1905.11881 on clipping; PyTorch's word_language_model"

    def signature(self, case: Case) -> Signature:
        burst, lead = burst_of_gradient(case)
        left_out = noted(case, "clipped-nothing")
        clips_nothing = left_out is not None
        of_some = left_out is not None and left_out.severity == "note"
        jump = jump_of_rate(case.window, case.onset)
        long = long_rows(case, STRONG)
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
                *symptom(case, CERTAIN, "clipped-nothing", invariant=True),
                *when(of_some, STRONG, left_out.message if left_out is not None else "", "symptoms"),
                *(symptom(case, STRONG, *LEAPS, notes=True) if of_some else ()),
                *long,
                *(() if long else above(case, "loss_excess", 2.0, -STRONG, EXCESS)),
                *when(
                    jump > JUMP,
                    -FAIR,
                    f"the learning rate became {jump:.3g} times as high at step {case.onset} or shortly before",
                    "window learning_rate",
                    jump=jump,
                ),
                *symptom(case, FAIR, "exploding-gradients", "gradient-norm-spike"),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
                *ruled_out(sinks_without_bound(case), "the loss sank, as the steps were meant to do", "symptoms"),
                *ruled_out(
                    surveyed(case) and fact(case, "clipped") is True and not clips_nothing, "the gradients are clipped"
                ),
                *when(
                    burst <= BURST and not clips_nothing,
                    -STRONG,
                    "no gradient was longer than usual",
                    "window gradient_norm",
                    burst=burst,
                ),
            ),
            layer=layer_of(case),
        )


EXCESS = "the batch's loss is {value} times that of other batches in the same state: they would not do it"

JUMP = 1.5
"""Times that the rate rose. A gradient that leaps right after that leapt because of the rate."""

BURST, FAR_BURST = 3.0, 10.0
"""Healthy gradients vary threefold; ten times the ninetieth percentile is a leap."""

LEAPS = ("loss-spike", "update-norm-spike", "gradient-norm-spike", "gradient-norm-jump", "exploding-gradients")
