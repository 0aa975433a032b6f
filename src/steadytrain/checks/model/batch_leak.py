"""Does one row of the batch affect another?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from steadytrain.checks.subject.inputs import random_weights, rows_or_refuse, time_may_come_first, traced
from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed
from steadytrain.checks.subject.short_training import evaluating, few_rows
from steadytrain.core.plugins import threshold


@final
@dataclass(frozen=True)
class BatchLeak(Check):
    """The model's output for one row does not depend on the other rows.

    Means:
        The check differentiates the output for one row with respect to the inputs of all rows, in evaluation mode
        (batch normalisation mixes rows on purpose in training mode). The gradient for the other rows must be exactly 0.
        If it is not, rows exchange information: the loss looks too good, and inference on single rows differs.

    Causes:
        - a `view` or `reshape` that swaps the dimensions of rows and time or channels, in place of a `transpose`
        - attention or softmax over the dimension of the rows; `batch_first` the wrong way round
        - statistics over the whole batch, also in evaluation mode

    Next:
        1. Print the shape after each reshape, and follow row 0.
        2. Run the model on one row alone and compare: the first module whose output differs has the fault.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "Karpathy, A Recipe for Training Neural Networks (2019): use backprop to chart dependencies"

    rows_max: int = threshold(4, "rows that the check differentiates")
    leak_share: float = threshold(1e-6, "of the row's own gradient; exactly 0 is right, fused kernels round")

    def inspect(self, subject: Subject) -> Outcome:
        batch = few_rows(subject.batches[0], self.rows_max)
        rows = rows_or_refuse(batch, 2)
        with evaluating(subject.model):
            seen = traced(subject, batch)
            if seen.output.dim() == 0 or not seen.output.requires_grad:
                return not_run("the model's output does not depend on its inputs by a gradient: see input-independence")
            worst, own = 0.0, 0.0
            for row in (0, rows - 1):
                part = seen.output[row]
                total = (part * random_weights(part)).sum()
                gradients = torch.autograd.grad(total, list(seen.leaves), retain_graph=True, allow_unused=True)
                for gradient in gradients:
                    if gradient is not None and len(gradient) == rows:
                        own = max(own, _size(gradient[row]))
                        worst = max(worst, _size(gradient[[other for other in range(rows) if other != row]]))
        if own == 0.0 and worst == 0.0:
            return not_run("no gradient reaches the inputs: see input-independence")
        share = worst / max(own, 1e-30)
        numbers: dict[str, Any] = {"rows": rows, "own": own, "others": worst, "share": share}
        if share > self.leak_share:
            if time_may_come_first(subject, batch):
                return not_run(
                    "a layer takes [time, rows, ...]: the first dimension may be time, and no rows", **numbers
                )
            return failed(f"a row depends on the others: their gradient is {share:.2g} of its own", **numbers)
        return passed(f"no row depends on another ({rows} rows, by gradient)", **numbers)


def _size(gradient: Tensor) -> float:
    return float(gradient.detach().abs().max()) if gradient.numel() else 0.0
