"""Rows that are computed in another order and not put back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class RegroupedRows(SourceRule):
    """Rows are sorted or grouped for a part of the model, and its results are not put back into their order.

    Means:
        The source of the script takes rows in the order of a sort, or group by group, computes them, and returns the
        joined results as they are. Each row then gets the result of another row. No shape is wrong and nothing is
        raised: the model learns what is common to all rows, and not more.

    Causes:
        - `torch.cat([expert(x[chosen == i]) for i, expert in enumerate(experts)])`
        - rows that are sorted by length for a packed sequence, and not sorted back
        - heads or norms of tasks and domains that are applied group by group

    Next:
        1. Put the results back: `out = torch.empty_like(joined); out[order] = joined`, or `joined[order.argsort()]`.
        2. Change one row of a batch, and see that no other output changes.
    """

    kind: ClassVar[str] = "rows-regrouped"
    says: ClassVar[str] = (
        "computes the rows in another order and does not put the results back: each row gets that of another row"
    )
