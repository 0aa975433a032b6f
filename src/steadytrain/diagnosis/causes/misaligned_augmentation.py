"""The image and its mask or its class no longer belong together after an augmentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import fact, ruled_out, seen, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class MisalignedAugmentation(Cause):
    """An augmentation moves the image and not its mask, its boxes or its class, so they no longer belong together.

    Means:
        A flip, crop or rotation that is drawn once for the image and once more for the mask moves them differently.
        Pairs are wrong in every epoch, and differently each time: the model learns a blurred mean. Held-out pairs
        that are not augmented are right, so the validation shows what the training lacks. A mirror turns left into
        right: where the class says which, it has to change with the image.

    Causes:
        - one random transform, called on the image and on the mask
        - a seed that is set before the first call only
        - a flip or crop of the image alone: the mask, the boxes or the points stay as they were
        - a horizontal flip of arrows, digits or roads to steer on, and the label stays

    Next:
        1. Draw once, and apply the same flip or crop to both.
        2. Leave a flip out that changes the class, or change the label with it.
        3. Look at some pairs as the model gets them.
    """

    axis = "data"
    base_rate = 1.0
    rivals = ("label-misalignment", "learning-rate-too-low")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "one-draw",
            4,
            "draw once for each sample, and move image and mask alike",
            code="both = augment(torch.cat([image, mask[None]])); image, mask = both[:-1], both[-1]",
            of=("separate-draws", "targets_exchanged"),
        ),
        Intervention(
            "change-label-with-mirror",
            4,
            "exchange left and right in the label wherever the image is mirrored, or leave the flip out",
            code="if flipped: image, label = image.flip(-1), MIRRORED[label]  # an angle: -angle",
            of=("mirrored-labels",),
        ),
    )
    grade = "B"
    source = "torchvision #230, #1169"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "separate-draws", "mirrored-labels", invariant=True),
                *when(
                    isinstance(fact(case, "targets_exchanged"), Mapping),
                    STRONG,
                    "images that come again have another target",
                    "fact targets_exchanged",
                ),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(
                    seen(case, "separate-draws") is None and seen(case, "mirrored-labels") is None,
                    "no random transform is drawn apart for image and mask",
                ),
            )
        )
