"""The correction of a softmax over sampled items has the wrong sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class AddedCorrection(SourceRule):
    """The log-probability of being sampled is added to the scores of a sampled softmax, not subtracted.

    Means:
        A softmax over the items of a batch, or over drawn negatives, meets an item as often as it is sampled. The
        logarithm of that probability, taken off its score, makes up for it. With the wrong sign common items are
        penalised twice: the loss falls as usual, and what is retrieved is full of rare items.

    Causes:
        - `logits = user @ item.T + log_q` (two towers, in-batch negatives)
        - a sampled softmax of a language model to whose scores the log of the noise distribution is added
        - the adjustment for rare classes, which does add a log prior, copied to a sampled softmax

    Next:
        1. Subtract it: `logits = user @ item.T - log_q`.
        2. Leave it out once, and compare the recall on held-out pairs.
    """

    kind: ClassVar[str] = "added-correction"
    says: ClassVar[str] = (
        "adds the logarithm of the sampling probability to the scores of a sampled softmax: it has to be subtracted, "
        "and with this sign common items are penalised twice"
    )
