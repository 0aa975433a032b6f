"""Validation rows are augmented at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class AugmentedValidation(SourceRule):
    """The validation rows are augmented at random, because they are a part of the training's data set.

    Means:
        The source of the script makes one data set with random augmentation and splits this object. Both parts read
        their rows through it, so the validation rows are cropped and flipped by a new draw in each epoch. The score is
        that of harder rows than those to come; it changes without the model, and so does the choice of the best epoch.

    Causes:
        - `random_split(ImageFolder(root, transform=augment), [0.8, 0.2])`
        - a flip in `__getitem__` without a switch

    Next:
        1. Make two data sets of the same files, one without augmentation, and take `Subset`s of them by the same split.
        2. Evaluate twice without a step between: both scores should be equal.
    """

    kind: ClassVar[str] = "shared-augmentation"
    says: ClassVar[str] = (
        "splits one data set with random augmentation: the validation rows are augmented anew each time, too"
    )
