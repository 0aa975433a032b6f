"""Steps that are too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np

from steadytrain.diagnosis.batch_scaling import rate_beyond_batches
from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Sign, Signature
from steadytrain.diagnosis.interventions import CLIP, EXAMPLE, LONGER_WARMUP, LOWER_RATE
from steadytrain.diagnosis.script_signs import sinks_without_bound
from steadytrain.diagnosis.signs import (
    FAR_MEMORY,
    LEADS,
    LEVEL_STEPS,
    RISES,
    Signs,
    above,
    below,
    burst_of_gradient,
    fact,
    holds,
    jump_of_rate,
    largest_input,
    momentum_of,
    no_second_moment,
    not_finite,
    quiet,
    ruled_out,
    seen,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trial_tables.updates import WHOLE_UPDATE
from steadytrain.experiments.trials.scale_inputs import EARLY_STEPS, FAR_MIN
from steadytrain.statistics.script_rows import script_rows

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class LearningRateTooHigh(Cause):
    """The learning rate is too high for the loss surface.

    Means:
        Each step overshoots: where the curvature exceeds 2/rate (38/rate for preconditioned Adam at beta1 0.9), steps
        along that direction grow. It happens on any batch and in any precision. A lower rate helps against nearly
        everything, so that alone proves little: the rate is the cause if nothing else helps, or if it jumped.

    Causes:
        - a rate made for another batch size, model, optimizer or adapter
        - parameters that join in mid-run, such as an unfrozen encoder, at the rate of the others
        - a schedule that jumps: a restart, a resume, a wrong unit, the peak of a cycle
        - a batch that grows in mid-run, and a factor for it that multiplies the current rate each time: it compounds
        - curvature that grew during training

    Next:
        1. A third of the rate from the snapshot on; check where the ratio of update to weight settles (1e-3 is usual).
        2. A longer warm-up, then clipping.
        3. If the symptom returns at each rate: check attention logits, log partition and norms.
    """

    axis = "optimizer"
    base_rate = 30.0
    rivals = (
        "bad-batch",
        "second-moment-lag",
        "stale-optimizer-state",
        "missing-warmup",
        "missing-zero-grad",
        "data-shift",
        "attention-logit-growth",
        "accumulation-scaling",
        "bad-initialization",
        "singular-operation",
        "half-precision-overflow",
        "scheduler-misstep",
        "unshuffled-data",
        "clip-before-unscale",
        "custom-operation-fault",
        "dead-units",
        "weight-decay-misuse",
        "input-scale",
    )
    expects = like("rate", either=("longer-warmup",))
    confirming = (
        "learning-rate-thousandth",
        "learning-rate-third",
        "learning-rate-tenth",
        "learning-rate-hundredth",
        "constant-learning-rate",
    )
    spared = ("drop-batch", "fresh-data", "beta2-lower", "float32", "scale-inputs")
    interventions = (LOWER_RATE, LONGER_WARMUP, CLIP, EXAMPLE)
    grade = "A"
    source = "2103.00065; 2207.14484; nanoGPT #136, #411; xtuner #813"

    def signature(self, case: Case) -> Signature:
        jump = jump_of_rate(case.window, case.onset)
        leapt = fact(case, "clipped") is False and burst_of_gradient(case)[1] > LEADS
        # Without a second moment, an update is as long as its gradient: then its length tells of the leap alone.
        long = () if leapt and no_second_moment(case) else _long_updates(case)
        return Signature(
            (
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
                *ruled_out(sinks_without_bound(case), "the loss sank, as the steps were meant to do", "symptoms"),
                *ruled_out(
                    not jump > FAR_RATIO and _out_of_the_blue(case),
                    "neither loss nor gradients grew before it was not finite, as they do where steps overshoot",
                    "window loss, gradient_norm",
                ),
                *when(
                    jump > 1.5,
                    CERTAIN if jump > FAR_RATIO else STRONG,
                    f"the learning rate became {jump:.3g} times as high at step {case.onset} or shortly before"
                    + _by_schedule(case)
                    + _beyond_batches(case),
                    "window learning_rate",
                    jump=jump,
                ),
                *_still_rising(case),
                *_joined(case),
                *long,
                *below(case, "update_ratio", 0.003, -FAIR, "an update changes a matrix by {value} of it at most"),
                *when(
                    FAR_MEMORY <= momentum_of(case) <= 1.0,
                    -FAIR,
                    f"the momentum is {momentum_of(case):.4g}, which makes steps longer than their rate",
                    "fact momentum",
                ),
                *when(
                    leapt,
                    -HINT,
                    "a gradient leapt before the loss rose, and nothing clipped it",
                    "window gradient_norm",
                ),
                *symptom(case, FAIR, "divergence", "oscillation", "exploding-gradients"),
                *symptom(case, HINT, "loss-spike", "update-norm-spike", "gradient-norm-spike", "no-learning"),
                *_idle_clip(case),
                *_only_slower(case),
                *holds(
                    case,
                    "gradients_carried_over",
                    -FAIR,
                    "gradients of earlier steps are added, which is another cause",
                ),
            ),
        )


def _only_slower(case: Case) -> Signs:
    """Faults that smaller steps hide for a while."""
    return (
        *when(
            seen(case, "sorted-labels") is not None,
            -STRONG,
            "the data come in the order of their classes: smaller steps only forget them more slowly",
            "symptoms",
        ),
        *when(
            largest_input(case) >= FAR_MIN and case.onset <= EARLY_STEPS,
            -CERTAIN,
            f"the root mean square of an input feature is {largest_input(case):.3g}, and the gradient grows with it: "
            "smaller steps only make up for that",
            "fact input_scale",
        ),
        *when(
            bool(fact(case, "wrapped_integers")),
            -CERTAIN,
            "integers of the script wrap around: smaller steps only take longer to a number that does not fit",
            "fact wrapped_integers",
        ),
        *when(
            bool(fact(case, "discarded_writes")),
            -STRONG,
            "the script changes a copy and throws it away: smaller steps only hide what is not changed",
            "fact discarded_writes",
        ),
    )


def _idle_clip(case: Case) -> Signs:
    """The script clips, and its clip does nothing: a rate that is too high without it is another cause."""
    so = "and does nothing, and the rate is one for clipped gradients"
    return (
        *holds(case, "clip_before_backward", -CERTAIN, f"the script's clip comes before the backward {so}"),
        *when(
            seen(case, "clipped-nothing") is not None,
            -CERTAIN,
            f"the script's clip is given no parameters {so}",
            "symptoms",
        ),
    )


def _long_updates(case: Case) -> Signs:
    first = above(
        case,
        "update_ratio_first_median",
        WHOLE_UPDATE,
        STRONG if no_second_moment(case) else CERTAIN,
        "the first update changed the median matrix by {value} of it",
    )
    if seen(case, "vanishing-weights") is not None:
        return first  # beside such weights, any update is long
    return (
        *first,
        *above(case, "update_ratio_median", 0.03, STRONG, "an update changes the median tensor by {value} of it"),
        *above(case, "update_ratio", 0.1, FAIR, "an update changes a matrix by {value} of it"),
    )


def _still_rising(case: Case) -> Signs:
    """The rate rose in every step of the second half of the run up to the onset: a warm-up that was not over."""
    rates = case.window.series("learning_rate")
    known = (rates.steps <= case.onset) & np.isfinite(rates.values)
    steps, values = rates.steps[known], rates.values[known]
    half = steps > case.onset // 2
    if case.onset < RISING_STEPS_MIN or half.sum() < SEEN_MIN or int(steps[half][0]) > 3 * case.onset // 4:
        return ()
    later = values[half]
    if not (np.diff(later) > 0).all() or not later[-1] > RISEN_MIN * later[0] > 0:
        return ()
    said = (
        f"the learning rate grows in every step up to there{_by_schedule(case)}: from {later[0]:.3g} at step "
        f"{steps[half][0]} to {later[-1]:.3g} at step {steps[half][-1]}"
    )
    return (Sign(said, CERTAIN, "window learning_rate", {"rise": float(later[-1] / later[0])}),)


def _joined(case: Case) -> Signs:
    """Parameters joined the optimizer right before the onset, and train at its rate from there on."""
    near = [
        (int(step), int(count))
        for row in script_rows(case.window, "joined-parameters")
        for step, count in zip(row.steps, row.values, strict=True)
        if np.isfinite(count) and case.onset - JOINED_STEPS <= step <= case.onset
    ]
    if not near:
        return ()
    step, count = near[0]
    rates = case.window.series("learning_rate").between(step, step)
    at = f" at a learning rate of {rates.values[0]:.3g}" if len(rates) else ""
    said = f"{count} parameters joined the optimizer at step {step}, and train{at} from there on"
    return (Sign(said, STRONG, "window script", {"joined": float(count)}),)


def _beyond_batches(case: Case) -> str:
    beyond = rate_beyond_batches(case.window, case.onset)
    return f"; {beyond}" if beyond is not None else ""


def _by_schedule(case: Case) -> str:
    scheduler = fact(case, "scheduler")
    return f", by its schedule ({scheduler})" if isinstance(scheduler, str) else ""


JOINED_STEPS = 8
"""Steps before the onset in which parameters joined that may have brought it."""

FAR_RATIO = 3.0
"""A jump of the rate by this factor at the very step leaves little doubt."""

GROWN = 3.0
"""Times the median of the losses before: steps that overshoot make the loss grow by more before it overflows."""
RISING_STEPS_MIN, RISEN_MIN = 64, 1.5
"""Steps to the onset, and how much the rate rose in the second half of them: twice in a linear warm-up from zero."""

SEEN_MIN, LAST = 12, 3
"""Rows before the onset without which nothing is said, and those that must not have grown."""


def _out_of_the_blue(case: Case) -> bool:
    """Whether a value was not finite although neither the loss nor the gradient norm had grown."""
    if not not_finite(case) or any(one.name in RISES for one in case.symptoms):
        return False
    for name in ("loss", "gradient_norm"):
        series = case.window.series(name)
        values = np.abs(series.values[(series.steps < case.onset) & np.isfinite(series.values)][-LEVEL_STEPS:])
        if len(values) < SEEN_MIN or float(values[-LAST:].max()) > GROWN * float(np.median(values)):
            return False
    return True
