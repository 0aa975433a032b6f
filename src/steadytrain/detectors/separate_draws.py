"""An image and its mask are moved by separate random draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class SeparateDraws(SourceRule):
    """An image and its mask are moved by separate random draws.

    Means:
        The source of the script calls one random transform twice, on an image and on its mask or another dense
        target, and each call draws for itself. A flip, a crop or a rotation then moves the one and not the other:
        most targets do not belong to their image. The loss falls to a blurred mean and stays there.

    Causes:
        - `self.transform(image)` and `self.transform(mask)` in `__getitem__`
        - a flip that is drawn again before the mask

    Next:
        1. Draw once for each sample, and apply the same to both: stack them, or pass the drawn numbers.
        2. Show some batches with the mask over the image.
    """

    kind: ClassVar[str] = "separate-draws"
    says: ClassVar[str] = (
        "moves an image and its mask by separate random draws, so the mask does not match the image as fed"
    )
