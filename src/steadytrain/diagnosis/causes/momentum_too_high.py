"""A momentum that makes each step many times as long as its rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, STRONG, Cause, Signature
from steadytrain.diagnosis.interventions import CLIP, LOWER_MOMENTUM, LOWER_RATE
from steadytrain.diagnosis.signs import (
    FAR_MEMORY,
    LONG_MEMORY,
    calm_before,
    fact,
    measured,
    momentum_of,
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
class MomentumTooHigh(Cause):
    """The momentum is so high that past gradients carry the weights far beyond what the rate alone would.

    Means:
        SGD with momentum `m` moves `rate / (1 - m)` along a gradient that persists: 0.99 steps ten times as far as 0.9
        at the same rate, and for a hundred steps after the gradient has turned. The loss swings with a long period and
        climbs. With Adam a beta1 near 1 has the same delay, without the longer step.

    Causes:
        - a momentum copied from a run with another batch size, or 0.99 typed for 0.9
        - a momentum that was raised while the rate stayed
        - beta1 and beta2 exchanged

    Next:
        1. A momentum of 0.9 from the snapshot on, at the same rate.
        2. To keep 0.99, multiply the rate by 0.1: what counts is `rate / (1 - momentum)`.
        3. Check the order of `betas`: (0.9, 0.999).
    """

    axis = "optimizer"
    base_rate = 5.0
    rivals = ("learning-rate-too-high", "second-moment-lag", "bad-batch")
    expects = like("rate", removed=("momentum-lower",), either=("learning-rate-third", "constant-learning-rate"))
    confirming = ("momentum-lower",)
    spared = ("drop-batch", "fresh-data")
    interventions = (LOWER_MOMENTUM, LOWER_RATE, CLIP)
    grade = "A"
    source = "Sutskever and others, On the importance of initialization and momentum (ICML 2013); 2103.00065"

    def signature(self, case: Case) -> Signature:
        memory = momentum_of(case)
        rate = measured(case, "learning_rate")
        adam = fact(case, "betas") is not None
        effective = "" if adam else f": a step is {rate:.3g} / (1 - {memory:.4g}) = {rate / (1 - memory or 1):.3g} long"
        return Signature(
            (
                *when(
                    calm_before(case),
                    -CERTAIN,
                    "neither the loss nor the gradient grew before it, so a lower rate only comes there later",
                    "window loss, gradient_norm",
                ),
                *when(
                    FAR_MEMORY <= memory <= 1.0,
                    STRONG + FAIR,
                    f"{'beta1' if adam else 'the momentum'} is {memory:.4g}{effective}",
                    "fact betas" if adam else "fact momentum",
                    momentum=memory,
                ),
                *when(
                    LONG_MEMORY <= memory < FAR_MEMORY,
                    FAIR,
                    f"{'beta1' if adam else 'the momentum'} is {memory:.4g}{effective}",
                    "fact betas" if adam else "fact momentum",
                    momentum=memory,
                ),
                *symptom(case, FAIR, "oscillation", "divergence", "exploding-gradients", "lost-progress"),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
                *ruled_out(surveyed(case) and math.isnan(memory), "the optimizer has no momentum"),
                *ruled_out(memory < LONG_MEMORY, f"the momentum is {memory:.3g}, as usual"),
            )
        )
