"""Does batch normalisation see enough rows?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from torch import Tensor, nn

from steadytrain.checks.subject.model_check import Check, Cost, Outcome, Subject, failed, not_run, passed, warned
from steadytrain.core.plugins import threshold

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@final
@dataclass(frozen=True)
class BatchNormRows(Check):
    """Batch normalisation gets enough rows for its statistics, in every batch.

    Means:
        In training mode a batch norm computes mean and variance over the micro-batch, however many micro-batches are
        accumulated. With one row these are the statistics of a single example, which evaluation mode does not use:
        training looks fine and evaluation is far off. The last batch of an epoch counts too: a single leftover row
        spoils the running statistics, or ends the run.

    Causes:
        - a batch size of 1 or 2 to save memory, with accumulation
        - `drop_last=False` with a data set whose size leaves one row over
        - a model made for large batches on several GPUs, without synchronised statistics

    Next:
        1. Use GroupNorm or LayerNorm, or freeze the batch norms (`module.eval()`) if the weights are trained already.
        2. Set `drop_last=True` on the training loader.
    """

    cost: ClassVar[Cost] = "free"
    source: ClassVar[str] = "pytorch#1206 (training 90 %, evaluation NaN), SparseConvNet#105; Wu & He 2018 (group norm)"

    rows_min: int = threshold(4, "fewer rows in a micro-batch warn; Wu & He: error rises")

    def inspect(self, subject: Subject) -> Outcome:
        norms = {name: module for name, module in subject.model.named_modules() if isinstance(module, KINDS)}
        if not norms:
            return not_run("the model has no batch normalisation")
        seen: dict[str, int] = {}

        def note(name: str) -> Any:
            def before(module: nn.Module, args: tuple[Tensor, ...]) -> None:
                if module.training and args:
                    seen[name] = min(seen.get(name, len(args[0])), len(args[0]))

            return before

        handles = [module.register_forward_pre_hook(note(name)) for name, module in norms.items()]
        try:
            for batch in subject.batches[:2]:
                subject.look(batch)
        finally:
            for handle in handles:
                handle.remove()
        if not seen:
            return passed(f"{len(norms)} batch norms, all in evaluation mode")
        name, fewest = min(seen.items(), key=lambda one: one[1])
        left = _left_over(subject.loader)
        numbers: dict[str, Any] = {"batch_norms": len(norms), "fewest_rows": fewest, "left_over": left}
        if fewest == 1:
            return failed(f"{name} takes its statistics from a single row", **numbers)
        if left == 1:
            return failed("the last batch of each epoch has a single row, and drop_last is off", **numbers)
        if fewest < self.rows_min:
            return warned(f"{name} takes its statistics from {fewest} rows", **numbers)
        return passed(f"{len(norms)} batch norms get {fewest} rows or more", **numbers)


def _left_over(loader: Any) -> int | None:
    """Rows in the last batch of an epoch, None if unknown."""
    dataset: Any
    size, dataset = getattr(loader, "batch_size", None), getattr(loader, "dataset", None)
    if not isinstance(size, int) or getattr(loader, "drop_last", True) or not hasattr(dataset, "__len__"):
        return None
    try:
        return len(dataset) % size or size
    except TypeError:
        return None
