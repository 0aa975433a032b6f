"""A warm-up of the learning rate from the script's first step on."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import from_the_beginning
from steadytrain.experiments.specs import Change, NotApplicable, Spec
from steadytrain.experiments.trial import Trial

EARLY_STEPS = 500
"""Up to this step, a warm-up may have been too short."""

STEPS_MIN = 20


@final
class LongerWarmup(Trial):
    """A warm-up of the learning rate from the script's first step on.

    Changes:
        From the script's first step, the rate rises from a small share of its value over several times the steps to the
        onset; if the run does not learn, over half of the trial.

    Tells:
        A missing or too short warm-up.

    Beware:
        Any smaller rate helps against many causes; compare with rewarm and learning-rate-third.
    """

    axis = "optimizer"
    removes = "rate moments state logits transient"
    either = "data half kernel ranks shift operation script"
    alike = "smaller steps"
    rate_only = True

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        if case.onset > EARLY_STEPS:
            return NotApplicable(f"the onset at step {case.onset} is long after a warm-up")
        steps = case.steps_after // 2 if case.aim == "progress" else 5 * case.onset
        return from_the_beginning(self, case, Change("ramp-learning-rate", {"steps": max(STEPS_MIN, steps)}))
