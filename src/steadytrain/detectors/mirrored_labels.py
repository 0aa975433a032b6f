"""Images are mirrored, and a class that says left or right stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class MirroredLabels(SourceRule):
    """Images are mirrored at random although their class depends on the side, and the label stays as it was.

    Means:
        The source of the script flips inputs at random, and its classes are mirror images of each other: left and
        right, an angle of steering, digits or letters. A flipped arrow to the left is an arrow to the right with the
        label `left`. With a flip in every second row half of those labels are wrong, and the model cannot do better
        than a coin between the two classes.

    Causes:
        - `RandomHorizontalFlip` taken over from a script for photographs
        - an angle or an action that is not negated together with its image
        - no fault: classes that look the same in a mirror

    Next:
        1. Leave the flip out, or exchange the two labels (negate the angle) wherever it is made.
        2. Show some augmented images with their labels.
    """

    kind: ClassVar[str] = "mirrored-labels"
    says: ClassVar[str] = "mirrors inputs at random, and a class that tells left from right (or up from down) stays"
