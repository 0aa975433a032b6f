"""Labels of a contrastive loss without the offset of the rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class LabelsWithoutRank(SourceRule):
    """Labels count the rows of one rank, and the logits hold the rows of all ranks.

    Means:
        Rows of this rank are compared with the gathered rows of all. The partner of row `i` of rank `r` is row `r *
        rows + i`; `arange(rows)` names the partners of rank 0. All other ranks learn wrong pairs, and the loss levels
        off high.

    Causes:
        - `labels = torch.arange(rows)` beside gathered features
        - code of one process to which a gather was added

    Next:
        1. Add the offset: `labels = torch.arange(rows) + rank * rows`.
        2. Check that the logit of each label is the largest of its row once the loss is low.
    """

    kind: ClassVar[str] = "local-labels"
    says: ClassVar[str] = (
        "numbers the labels from 0 on each rank, but the logits hold the rows of all ranks: without the offset rank "
        "* rows each rank but the first is taught wrong pairs"
    )
