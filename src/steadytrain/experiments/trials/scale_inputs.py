"""Inputs of mean 0 and standard deviation 1, from the script's first step on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import from_the_beginning
from steadytrain.experiments.specs import Change, NotApplicable, Outcome, Spec, Verdict
from steadytrain.experiments.training_fall import begun_alike
from steadytrain.experiments.trial import Trial

EARLY_STEPS = 500
"""Later, a model has adapted to the scale of its inputs."""

SCALE_MIN, SMALL_MAX = 10.0, 0.01
"""Root mean square of the largest feature from which on it counts as not scaled, and up to which as scaled twice."""

FAR_MIN = 100.0
"""And from which on no usual learning rate suits it."""


@final
class ScaleInputs(Trial):
    """Inputs of mean 0 and standard deviation 1, from the script's first step on.

    Changes:
        Each feature of the floating-point inputs of the model is shifted and divided by its mean and standard deviation
        in the first batch. Targets stay.

    Tells:
        Features in raw units (prices, bytes, years), whose gradients are too long for the rate, and features that were
        divided twice, from which the first layer learns next to nothing.

    Beware:
        A smaller rate helps against the same symptom; compare with learning-rate-tenth.
    """

    axis = "data"
    removes = "transient"
    either = "data rate moments state logits half shift operation script"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        found = case.facts.get("input_scale")
        if not isinstance(found, Mapping):
            return NotApplicable("no floating-point input was measured, or no survey ran")
        if SMALL_MAX < found["largest"] < SCALE_MIN or not found["largest"] > 0.0:
            return NotApplicable(f"the inputs have a usual scale: root mean square {found['largest']:.3g} at most")
        if case.onset > EARLY_STEPS:
            return NotApplicable(f"the onset at step {case.onset} is long after the model got used to its inputs")
        return from_the_beginning(self, case, Change("scale-inputs"))

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        return super().judge(case, controls, [begun_alike(one, controls) for one in outcomes])
