"""Images with blue first in a pretrained model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class SwappedChannels(SourceRule):
    """Images go into a pretrained model as OpenCV reads them, with blue in the place of red.

    Means:
        `cv2.imread` gives blue, green, red; nearly all pretrained models learned from red, green, blue. The source of
        the script reads images so, changes their order nowhere, and loads pretrained weights. Fine-tuning makes up for
        it in part: the score stays some points below what the weights can give, and the model fails on images that
        another program reads.

    Causes:
        - `cv2.imread(path)` in a data set that was written for PIL

    Next:
        1. `image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)` after the read.
        2. Show one image as the model gets it: skin that is blue tells.
    """

    kind: ClassVar[str] = "swapped-channels"
    says: ClassVar[str] = (
        "reads images with blue first for a pretrained model, and no line changes their order to red first"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(replace(one, severity="note") for one in super().check(window))
