"""Does a row get the same output alone as in a batch?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch

from steadytrain.checks.subject.inputs import output_by_rows, rows_or_refuse, time_may_come_first
from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed
from steadytrain.checks.subject.random_draws import why_not_comparable
from steadytrain.checks.subject.short_training import evaluating, few_rows
from steadytrain.core.plugins import threshold


@final
@dataclass(frozen=True)
class BatchSizeInvariance(Check):
    """In evaluation mode a row gets the same output alone as in its batch.

    Means:
        The check runs rows of the first batch alone and together, with the same padding. A difference above rounding
        means that evaluation depends on the batch size, and that single requests get other outputs than the evaluation
        did.

    Causes:
        - batch normalisation that uses the statistics of the batch in evaluation mode
        - `squeeze()` without a dimension: with one row it removes the row dimension
        - expert routing with a capacity that the batch shares
        - rows that influence each other (batch-leak)

    Next:
        1. Give every `squeeze` its dimension.
        2. Call `model.eval()` before evaluating, and keep `track_running_stats` on.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "chosen: batch size 1 against 8 within 1e-3"

    rows_max: int = threshold(4, "rows that are compared")
    same_share: float = threshold(1e-3, "of the largest output: other kernels for other sizes stay below it")

    def inspect(self, subject: Subject) -> Outcome:
        batch = few_rows(subject.batches[0], self.rows_max)
        rows = rows_or_refuse(batch, 2)
        worst, largest = 0.0, 0.0
        with evaluating(subject.model), torch.no_grad():
            together = output_by_rows(subject.look(batch), batch).detach().float()
            for row in (0, rows - 1):
                single = batch.taken([row])
                try:
                    alone = output_by_rows(subject.look(single), single).detach().float()
                except Exception as error:
                    return failed(f"the loss of a single row cannot be computed: {error}", rows=rows)
                if alone.shape[1:] != together.shape[1:] or len(alone) != 1:
                    return failed(
                        f"a single row has an output of shape {list(alone.shape)}, among {rows} rows one of "
                        f"{list(together.shape[1:])}",
                        rows=rows,
                    )
                worst = max(worst, float((alone[0] - together[row]).abs().max()))
                largest = max(largest, float(together[row].abs().max()))
        numbers: dict[str, Any] = {"difference": worst, "largest": largest, "rows": rows}
        if not worst <= self.same_share * max(largest, 1e-12):
            if time_may_come_first(subject, batch):
                return not_run(
                    "a layer takes [time, rows, ...]: the first dimension may be time, and no rows", **numbers
                )
            if why := why_not_comparable(subject, batch):
                return not_run(why, **numbers)
            return failed(f"a row alone differs from the same row among {rows} by {worst:.2g}", **numbers)
        return passed(f"a row gets the same alone as among {rows}, to {worst:.1g} of {largest:.2g}", **numbers)
