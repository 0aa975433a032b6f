"""Masks of classes that are resized with interpolation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class SmoothedMasks(SourceRule):
    """Masks of classes are resized or turned with interpolation, which makes classes that are not there.

    Means:
        The source of the script interpolates a mask whose values are numbers of classes, and makes integers of the
        result. A mean of class 1 and class 3 is class 2: a band of a wrong class lies along each border. The model
        learns these bands, and thin objects disappear in them.

    Causes:
        - `TF.resize(mask, size)`, `cv2.resize(mask, size)`: their default is an image's
        - `F.interpolate(mask.float(), mode="bilinear")`
        - one chain of transforms for the image and its mask

    Next:
        1. Resize masks by the nearest value: `InterpolationMode.NEAREST`, `cv2.INTER_NEAREST`, `mode="nearest"`.
        2. Compare the classes before and after: `mask.unique()`.
    """

    kind: ClassVar[str] = "smoothed-mask"
    says: ClassVar[str] = "interpolates a mask of classes: between two classes it makes others that are not there"
