"""An image and its mask are moved by separate random draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import SourceRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class SeparateDraws(SourceRule):
    """An image and its mask are moved by separate random draws, or the image alone is moved.

    Means:
        The source of the script calls one random transform twice, on an image and on its mask or another dense target,
        and each call draws for itself; or it moves the image and never the mask, the boxes or the points. A flip, a
        crop or a rotation then moves the one and not the other: most targets do not belong to their image. The loss
        falls to a blurred mean and stays there.

    Causes:
        - `self.transform(image)` and `self.transform(mask)` in `__getitem__`
        - a flip that is drawn again before the mask
        - a flip of the image alone: its mask, its boxes or its key points stay where they were

    Next:
        1. Draw once for each sample, and apply the same to both: stack them, or pass the drawn numbers.
        2. Boxes and points move by arithmetic: `boxes[:, [0, 2]] = width - boxes[:, [2, 0]]`.
        3. Show some batches with the mask or the boxes over the image.
    """

    kind: ClassVar[str] = "separate-draws"
    says: ClassVar[str] = (
        "moves an image and its mask by separate random draws, so the mask does not match the image as fed"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = super().check(window)
        for kind, what, is_ in (("moved-alone", "mask", "does"), ("places-alone", "boxes or points", "do")):
            told = f"moves the image at random and not its {what}, so the {what} {is_} not match the image as fed"
            alone = script_rows(window, kind)
            lines = float(len(alone))
            found = found or tuple(self.warning(window, row, f"{row.place} {told}", lines=lines) for row in alone[:1])
        return found
