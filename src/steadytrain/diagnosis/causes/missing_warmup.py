"""Full steps from the first one on."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.detectors import ScriptRule
from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Signature
from steadytrain.diagnosis.depth_signs import deepened
from steadytrain.diagnosis.interventions import CLIP, LONGER_WARMUP, LOWER_RATE
from steadytrain.diagnosis.signs import (
    Signs,
    above,
    calm_before,
    fact,
    holds,
    largest_input,
    no_second_moment,
    quiet,
    ruled_out,
    symptom,
    when,
)
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trial_tables.updates import RATE_CUTS, WHOLE_UPDATE
from steadytrain.experiments.trials.scale_inputs import FAR_MIN
from steadytrain.grouping.catalog import declared

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class MissingWarmup(Cause):
    """The learning rate is at its peak from the first step on.

    Means:
        Adam's second moment averages only a few gradients, and curvature is highest at the start, so the first steps
        are too large. Warm-up lowers sharpness (2406.09405); without it more seeds fail (2006.04884).

    Causes:
        - no warm-up, or one that was counted in other units (epochs, micro-batches)
        - no bias correction
        - a resume with fresh moments and the full rate

    Next:
        1. Warm up over 1 to 10 percent of the steps.
        2. If the run is short, a lower peak.
        3. Check that the optimizer applies bias correction.
    """

    axis = "optimizer"
    base_rate = 8.0
    rivals = ("learning-rate-too-high", "second-moment-lag")
    expects = like(
        "rate",
        removed=("longer-warmup", "rewarm"),
        either=RATE_CUTS,
    )
    confirming = ("longer-warmup",)
    # A warm-up lowers the rate for a while. If a lower rate helps as well, the trials cannot separate the two.
    spared = ("drop-batch", "float32", "fresh-data", "learning-rate-third")
    interventions = (LONGER_WARMUP, LOWER_RATE, CLIP)
    grade = "A"
    source = "2006.05987; 2006.04884; 2406.09405"

    def signature(self, case: Case) -> Signature:
        began = min((s.first_step for s in case.symptoms if s.severity != "note"), default=case.onset)
        early = began <= WARM_UP_STEPS
        return Signature(
            (
                *when(
                    calm_before(case),
                    -CERTAIN,
                    "neither the loss nor the gradient grew before it, so a lower rate only comes there later",
                    "window loss, gradient_norm",
                ),
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
                *ruled_out(
                    case.symptom is not None and case.symptom.name == "frozen-parameters",
                    "a warm-up does not help a missing gradient",
                    "symptoms",
                ),
                *when(
                    early and fact(case, "warmup_seen") is False,
                    FAIR if began <= FIRST_STEPS else HINT,
                    f"it began at step {began}, and the rate was at its peak from the first step on",
                    "fact warmup_seen",
                ),
                *(deepened(case) if early and fact(case, "warmup_seen") is False else ()),
                *holds(case, "warmup_seen", -FAIR, "the rate was warmed up"),
                *when(
                    _of_script(case), -STRONG, "only rules of the script were broken: no step was too large", "symptoms"
                ),
                *when(
                    largest_input(case) >= FAR_MIN,
                    -STRONG,
                    f"the root mean square of an input feature is {largest_input(case):.3g}: gradients grow with it",
                    "fact input_scale",
                ),
                *when(not early, -STRONG, f"it began at step {began}, long after any warm-up", "symptoms"),
                *above(case, "update_ratio_first", 0.1, FAIR, "the first update changed a matrix by {value} of it"),
                *(() if no_second_moment(case) else _too_long_for_any(case)),
                *symptom(
                    case, HINT, "divergence", "loss-spike", "exploding-gradients", "no-learning", "loss-above-guess"
                ),
            ),
        )


def _too_long_for_any(case: Case) -> Signs:
    """Adam's later updates are as long as its first: after a warm-up they would replace the weights, too."""
    return above(
        case,
        "update_ratio_first_median",
        WHOLE_UPDATE,
        -CERTAIN,
        "an update at that rate changes the median matrix by {value} of it, whenever it comes",
    )


FIRST_STEPS, WARM_UP_STEPS = 100, 500
"""Typical warm-ups take hundreds to thousands of steps. Up to the second bound, a trial can start from the
beginning.
"""


def _of_script(case: Case) -> bool:
    """Whether all symptoms above a note tell what the script does, and there is one."""
    alarms = [symptom for symptom in case.symptoms if symptom.severity != "note"]
    return bool(alarms) and all(issubclass(declared(one.name), ScriptRule) for one in alarms)
