"""Inputs that are padded on one side, and labels on the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class OppositePadding(SourceRule):
    """Inputs are padded on one side, and their labels or mask on the other, so labels belong to other places.

    Means:
        The source of the script brings rows to one length by padding on the left, and labels, targets or masks on the
        right, or the other way round; or it puts a row at the end of its places and counts the place of the label from
        the beginning. Rows of full length are right. In all others the labels stand beside padding or other tokens: the
        loss falls a part of the way and stays there.

    Causes:
        - left padding that was brought in for generation, while the labels are padded as before
        - `labels[row, prompt:prompt + n]` in a row that begins at `width - len(row)`
        - a loss mask that is padded at the other end than the tokens

    Next:
        1. Pad inputs, labels and masks with the same function, or add the offset of the row to each place.
        2. Print the tokens whose labels count, of one short row.
    """

    kind: ClassVar[str] = "opposite-padding"
    says: ClassVar[str] = "puts labels or a mask at the other end of the row than the padded inputs"
