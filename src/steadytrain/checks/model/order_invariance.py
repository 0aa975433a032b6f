"""Does the order of the rows matter?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch

from steadytrain.checks.subject.inputs import rows_or_refuse, time_may_come_first
from steadytrain.checks.subject.model_check import (
    Check,
    Cost,
    Look,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
    tensors_of,
)
from steadytrain.checks.subject.random_draws import why_not_comparable
from steadytrain.checks.subject.short_training import evaluating, few_rows
from steadytrain.core.plugins import threshold


@final
@dataclass(frozen=True)
class OrderInvariance(Check):
    """The loss of a batch does not depend on the order of its rows.

    Means:
        The check reverses the rows of the first batch and computes the loss again, in evaluation mode and with the same
        random numbers. The loss must be the same up to rounding: rows are examples and have no order.

    Causes:
        - labels and inputs that are not in the same order, or are paired by an index that is created anew
        - a mask, a weight or a position that depends on the place in the batch instead of the row
        - a `view` that mixes rows with another dimension

    Next:
        1. Look for tensors whose first dimension is the batch but that are not part of it (buffers, masks).
        2. Run batch-leak: if it fails too, look there first.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "order invariance: the loss of permuted rows is equal within floating-point tolerance"

    rows_max: int = threshold(16, "rows that the check reverses")
    same_share: float = threshold(1e-3, "of the loss: sums in another order stay far below it")

    def inspect(self, subject: Subject) -> Outcome:
        batch = few_rows(subject.batches[0], self.rows_max)
        rows = rows_or_refuse(batch, 2)
        turned = batch.taken(range(rows - 1, -1, -1))
        with evaluating(subject.model), torch.no_grad():
            looks = []
            for one in (batch, batch, turned):
                torch.manual_seed(0)
                looks.append(subject.look(one))
        first, again, other = (float(look.loss.detach()) for look in looks)
        share = abs(other - first) / max(abs(first), 1e-12)
        numbers: dict[str, Any] = {"loss": first, "turned_round": other, "difference_share": share, "rows": rows}
        if abs(again - first) > 1e-6 * max(abs(first), 1e-12):
            return not_run(
                "the loss of the same rows differs from one call to the next: see eval-determinism", **numbers
            )
        if not share <= self.same_share:
            if not _has_rows(looks[-1], rows):
                return not_run("the script's lines make the batch anew: its rows cannot be turned round", **numbers)
            if time_may_come_first(subject, batch):
                return not_run(
                    "a layer takes [time, rows, ...]: the first dimension may be time, and no rows", **numbers
                )
            if why := why_not_comparable(subject, batch):
                return not_run(why, **numbers)
            return failed(f"the loss is {first:.5g}, and {other:.5g} with the rows turned round", **numbers)
        return passed(f"the loss is the same with the {rows} rows turned round", **numbers)


def _has_rows(look: Look, rows: int) -> bool:
    """Whether the model got so many rows. Lines that stack a list of samples make as many as the list holds."""
    given = [tensor for _, args, kwargs, _ in look.calls for tensor in tensors_of([args, dict(kwargs)])]
    return not given or any(tensor.dim() > 0 and len(tensor) == rows for tensor in given)
