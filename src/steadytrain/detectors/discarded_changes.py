"""Changes in place of a copy that nobody keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class DiscardedChanges(SourceRule):
    """A change in place is lost, because a mask or an index tensor made a copy: `residual[index].zero_()`.

    Means:
        `residual[index]` with a mask, an index tensor or a list is a new tensor. The method changes that one, and
        nobody keeps it: `residual` itself stays as it was. No error is raised. A number or a slice would have given a
        view, on which the same method works.

    Causes:
        - a residual, a buffer or a hidden state that is to be cleared where a mask says so
        - weights to be pruned, clipped or drawn anew in chosen rows
        - the gradient of some rows to be set to 0

    Next:
        1. Assign: `residual[index] = 0`, `weight[mask] *= 0.5`, `table[rows] = values`.
        2. Or use `index_fill_`, `masked_fill_`, `index_copy_` on the tensor itself.
    """

    kind: ClassVar[str] = "changed-copy"
    says: ClassVar[str] = (
        "changes a copy in place and throws it away: an index tensor or a mask makes a copy, so the tensor itself "
        "stays as it was; assign to it, as in x[index] = value"
    )
