"""An overlap of masks that is computed of logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class OverlapOfLogits(SourceRule):
    """A loss computes the overlap of masks (Dice, IoU, Tversky) of logits in place of probabilities.

    Means:
        The ratio of the overlap to the sum of both masks lies between 0 and 1 for probabilities. In the source of the
        script its prediction passes neither a sigmoid nor a softmax: the ratio has no bounds, its denominator may be 0,
        and the loss jumps or is lowered without a better mask.

    Causes:
        - one output that goes both into `binary_cross_entropy_with_logits`, which takes logits, and into a Dice term
        - a sigmoid that was taken out of the model when the cross entropy with logits came in

    Next:
        1. Put `prediction = torch.sigmoid(logits)` (or `softmax(dim=1)`) before the overlap.
        2. Print the Dice term by itself: it has to stay between 0 and 1.
    """

    kind: ClassVar[str] = "overlap-of-logits"
    says: ClassVar[str] = (
        "computes a Dice or IoU term of raw logits, without a sigmoid or softmax: it has no bounds, and its "
        "denominator may be 0"
    )
