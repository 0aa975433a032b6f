"""Do several micro-batches give the gradient of one large batch?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from steadytrain.checks.subject.inputs import rows_or_refuse
from steadytrain.checks.subject.model_check import (
    Batch,
    CannotError,
    Check,
    Cost,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
)
from steadytrain.checks.subject.scores import class_call, row_sizes, scores_of
from steadytrain.checks.subject.short_training import few_rows, trained_parameters, without_dropout
from steadytrain.core.plugins import threshold

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@final
@dataclass(frozen=True)
class AccumulationEquivalence(Check):
    """Accumulated micro-batches give the same gradient as one batch with the same rows.

    Means:
        The check takes a batch whose rows have different numbers of targets, once whole and once in two parts that it
        accumulates as the script does. If the script averages each part over its own targets and then averages the
        parts, targets in a short part weigh more: the result depends on the number of accumulation steps.

    Causes:
        - the mean over the tokens of a micro-batch, divided by the number of micro-batches
        - a loss that is not divided by the number of micro-batches at all
        - batch normalisation: its statistics are those of a micro-batch
        - a trainer whose model does not take `num_items_in_batch`

    Next:
        1. Sum the losses of all targets and divide by their number in the whole step, over all micro-batches and ranks.
        2. If rows have about the same number of targets the difference is small; check the numbers.
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "transformers PR34191, trl#2175, ms-swift#2363: accumulation normalised by micro-batch"

    same_share: float = threshold(1e-3, "of the gradient's norm, in float32; correct scripts differ by 1e-6 to 1e-5")
    rows_max: int = threshold(8, "rows of the batch")

    def inspect(self, subject: Subject) -> Outcome:
        if subject.accumulation < 2:
            return not_run("the script accumulates nothing: one micro-batch for each step")
        if any(isinstance(module, BATCH_NORMS) and module.training for module in subject.model.modules()):
            return not_run("batch normalisation takes its statistics from the micro-batch: the two are never the same")
        without_dropout(subject.model)
        batch = few_rows(subject.batches[0], self.rows_max)
        rows = rows_or_refuse(batch, 2)
        batch, sizes, own = _uneven(subject, batch)
        half = rows // 2
        whole = _gradient(subject, [batch])
        parts = [batch.taken(range(half)), batch.taken(range(half, rows))]
        summed = _gradient(subject, parts)
        mean_apart, sum_apart = _apart(summed * 0.5, whole), _apart(summed, whole)
        apart = min(mean_apart, sum_apart)
        numbers: dict[str, Any] = {
            "difference_share": apart,
            "targets_of_parts": [sum(sizes[:half]), sum(sizes[half:])] if sizes else None,
            "rows": rows,
            "accumulation": subject.accumulation,
        }
        counts = f" ({sum(sizes[:half])} and {sum(sizes[half:])} targets)" if sizes else ""
        if not apart <= self.same_share and not own:
            return passed(
                f"all rows have the same number of targets; with others{counts} the gradient of two parts would differ "
                f"by {apart:.0%}",
                **numbers,
            )
        if not apart <= self.same_share:
            return failed(
                f"the gradient of two parts{counts} differs from that of the whole batch by {apart:.1%} of its norm",
                **numbers,
            )
        if not sizes or len(set(sizes)) == 1:
            return passed(f"two equal parts give the gradient of the whole, to {apart:.1g}", **numbers)
        return passed(f"two parts{counts} give the gradient of the whole, to {apart:.1g}", **numbers)


def _uneven(subject: Subject, batch: Batch) -> tuple[Batch, Sequence[int], bool]:
    """The batch with different numbers of targets in its halves, if the loss can ignore targets.

    Also returns the number of targets per row, and whether the script's rows already differ in it.
    """
    with torch.no_grad():
        look = subject.look(batch)
    scores = scores_of(look, batch.rows)
    if scores is None or scores.positions < 2:
        return batch, (), True
    sizes = row_sizes(scores.counted)
    own = len(set(sizes)) > 1
    half = len(sizes) // 2
    if sum(sizes[:half]) != sum(sizes[half:]):
        return batch, sizes, own
    call = class_call(look)
    ignored = int(call.options.get("ignore_index", -100)) if call is not None else -100
    labels = [t for name, t in batch.tensors().items() if "label" in name or "target" in name or name == "y"]
    labels = [t for t in labels if t.dim() == 2 and t.dtype == torch.int64]
    if not labels:
        return batch, sizes, own
    chosen = {id(tensor) for tensor in labels}

    def shortened(tensor: Tensor) -> Tensor:
        if id(tensor) not in chosen:
            return tensor
        changed = tensor.clone()
        changed[:half, tensor.shape[1] // 2 :] = ignored
        return changed

    uneven = batch.mapped(shortened)
    try:
        with torch.no_grad():
            again = scores_of(subject.look(uneven), uneven.rows)
    except CannotError:
        return batch, sizes, own
    return (uneven, row_sizes(again.counted), own) if again is not None else (batch, sizes, own)


def _gradient(subject: Subject, batches: Sequence[Batch]) -> Tensor:
    """The sum of the gradients of the batches' losses, as one vector."""
    parameters: list[Any] = trained_parameters(subject)
    for parameter in parameters:
        parameter.grad = None
    for batch in batches:
        torch.manual_seed(0)
        loss = subject.loss(batch)
        if not loss.requires_grad:
            raise CannotError("the loss does not depend on any parameter: see gradient-coverage")
        loss.backward()  # type: ignore[no-untyped-call]
    flat = [(p.grad if p.grad is not None else torch.zeros_like(p)).detach().double().flatten() for p in parameters]
    return torch.cat(flat)


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp_min(1e-30))
