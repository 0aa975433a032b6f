"""Masks of classes that are interpolated."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import not_finite, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class InterpolatedMasks(Cause):
    """Masks of classes are interpolated, so that borders belong to classes that are not there.

    Means:
        Numbers of classes have no order, and a mean of two of them is a third one. A resize or a rotation that
        interpolates, as is right for an image, writes a band of wrong classes along each border of the mask.

    Causes:
        - `resize` of a mask with the default of an image: bilinear or bicubic
        - one chain of transforms for both

    Next:
        1. Take the nearest value for masks.
        2. Look at a mask as the loss gets it, with a colour for each class.
    """

    axis = "data"
    base_rate = 1.0
    rivals = ("misaligned-augmentation", "label-misalignment", "learning-rate-too-low")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "nearest-value",
            5,
            "resize masks by the nearest value",
            code="mask = TF.resize(mask, size, interpolation=InterpolationMode.NEAREST)",
        ),
    )
    grade = "A"
    source = "torchvision, transforms v2: masks are resized by the nearest value"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "smoothed-masks", invariant=True),
                *ruled_out(seen(case, "smoothed-masks") is None, "no mask was seen to be interpolated"),
                *ruled_out(not_finite(case), "a wrong class makes nothing infinite", "symptoms"),
            )
        )
