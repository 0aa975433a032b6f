"""Logits that are compared with 0.5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class LogitThreshold(SourceRule):
    """A prediction is read off logits as if they were probabilities.

    Means:
        The loss takes logits, and the same output is compared with 0.5 or rounded for the prediction. A probability of
        one half is the logit 0: rows between 0 and 0.5, that is up to a probability of 0.62, count as negative. Recall
        is too low, and the model that such a metric chooses is not the best one. This is read in the source.

    Causes:
        - a sigmoid that moved from the model into `BCEWithLogitsLoss`, while the metric stayed
        - `torch.round(output)`

    Next:
        1. `output > 0`, or `output.sigmoid() > 0.5`.
    """

    kind: ClassVar[str] = "logit-threshold"
    says: ClassVar[str] = (
        "compares logits with the threshold of probabilities: 0.5 there is a probability of 0.62, and 0 is one of 0.5"
    )
