"""Inputs in raw units, or divided twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import fact, largest_input, noted, quiet, ruled_out, seen, symptom, when
from steadytrain.diagnosis.trial_effects import like
from steadytrain.experiments.trial_tables.updates import RATE_CUTS
from steadytrain.experiments.trials.scale_inputs import EARLY_STEPS, FAR_MIN, SCALE_MIN, SMALL_MAX

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class InputScale(Cause):
    """The inputs or targets are not scaled: features are tens or thousands of times larger or smaller than 1.

    Means:
        The gradient of the first layer grows with its input, and the curvature of the loss with the square of it. A
        rate that suits inputs of standard deviation 1 is then too high by that factor. If one feature is far larger
        than the others, no rate suits all of them. Of inputs near 0 the first layer gets next to no gradient, and its
        bias is all that it learns. Targets whose mean is far from zero are not reached by an optimizer
        whose steps have the length of its rate.

    Causes:
        - prices, counts, times or bytes as they stand in the data, as inputs or as targets
        - a scaler that was fitted and not applied, or only to the evaluation set
        - a division by 255 that was lost, or that is made twice; units that are converted twice
        - images that are not normalised as those that a pretrained model was trained on

    Next:
        1. Print mean and standard deviation of each feature of a batch, right before the model.
        2. Scale with the statistics of the training set, in one place.
        3. Take the logarithm of what spans orders of magnitude.
    """

    axis = "data"
    base_rate = 6.0
    rivals = (
        *("learning-rate-too-high", "missing-warmup", "bad-initialization", "unclipped-gradients"),
        *("learning-rate-too-low", "bad-batch"),
    )
    expects = like(
        "script",
        removed=("scale-inputs",),
        either=(
            *RATE_CUTS,
            "longer-warmup",
            "clip",
            "clip-usual",
            "rewarm",
        ),
    )
    confirming = ("scale-inputs",)
    spared = ("drop-batch",)
    interventions = (
        Intervention(
            "scale-inputs",
            4,
            "scale each feature with the statistics of the training set",
            "scale-inputs",
            code="x = (x - train_mean) / train_std",
        ),
        Intervention(
            "standardise-targets",
            4,
            "standardise the targets, and turn the predictions back",
            code="targets = (targets - train_targets.mean()) / train_targets.std()",
            of=("unscaled-targets",),
        ),
    )
    grade = "B"
    source = "LeCun et al., Efficient BackProp (1998), 4.3; Karpathy, A recipe for training neural networks (2019)"

    def signature(self, case: Case) -> Signature:
        found = fact(case, "input_scale")
        largest = largest_input(case)
        told = noted(case, "unexpected-inputs") is not None
        sure = _is_apart(found) or (largest >= FAR_MIN and not fact(case, "batch_norm_modules"))
        small = 0.0 < largest <= SMALL_MAX and noted(case, "unscaled-inputs") is not None
        return Signature(
            (
                *when(largest >= SCALE_MIN, CERTAIN if sure else STRONG, _said(found), "fact input_scale"),
                *when(small, CERTAIN if largest <= TWICE_MAX else STRONG, _said(found), "fact input_scale"),
                *symptom(case, STRONG, "unexpected-inputs", notes=True),
                *symptom(case, CERTAIN, "unscaled-targets", invariant=True),
                *symptom(case, HINT, "unscaled-inputs", "loss-above-guess", "exploding-gradients"),
                *when(
                    bool(fact(case, "batch_norm_modules")) and not told, -FAIR, "a batch norm may scale them", "facts"
                ),
                *when(case.onset > EARLY_STEPS, -STRONG, f"it began at step {case.onset}", "symptoms"),
                *ruled_out(
                    largest < SCALE_MIN and not small and not told and seen(case, "unscaled-targets") is None,
                    "no input or target was seen that is not scaled",
                ),
                *ruled_out(quiet(case) and not told, "no symptom above a note was seen", "symptoms"),
            )
        )


def _is_apart(found: object) -> bool:
    """Whether one feature is so much larger than the middle one that no rate suits both."""
    return isinstance(found, Mapping) and found["features"] > 1 and found["largest"] >= APART * found["middle"] > 0


APART = 1e3

TWICE_MAX = 5e-3
"""What bytes that were divided by 255 twice are at most."""


def _said(found: object) -> str:
    if not isinstance(found, Mapping):
        return ""
    more = f", of the middle feature {found['middle']:.3g}" if found["features"] > 1 else ""
    return f"the root mean square of feature {found['feature']} of the input is {found['largest']:.3g}{more}"
