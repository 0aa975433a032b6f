"""All ranks train on the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import RankRule
from steadytrain.statistics.rank_rows import rank_rows


@final
@dataclass(frozen=True)
class SameDataOnRanks(RankRule):
    """All ranks get the same batches: together they train as one rank, at the price of all.

    Means:
        The ranks train one model, and a sample of the values that they give it was the same on all ranks at every
        comparison, while it changed from step to step; or their losses were the same to the last bit. Each rank then
        computes the same gradient, and the batch is as large as that of one rank.

    Causes:
        - a loader without `DistributedSampler`, with one seed on all ranks
        - an iterable data set that does not split its stream by rank
        - a sampler that was made before the process group, with rank 0 of 1

    Next:
        1. Pass `sampler=DistributedSampler(dataset)` to the loader, and call `set_epoch` before each pass.
        2. Split an iterable data set by `torch.distributed.get_rank()`.
    """

    inputs_min: int = threshold(4, "comparisons in a row with the same inputs, each with others than the one before")
    losses_min: int = threshold(16, "steps in a row with equal losses, to the last bit of a float32")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = rank_rows(window)
        inputs, losses = rows.of_all("same-inputs"), rows.of_all("same-losses")
        if not rows.is_one_model or rows.of_all("sharded"):
            return ()
        if inputs < self.inputs_min and losses < self.losses_min:
            return ()
        return (
            Symptom(
                name="same-data-on-ranks",
                severity="warning",
                first_step=1,
                last_step=int(window.steps[-1]),
                message="all ranks train on the same batches: they compute one gradient several times",
                signals=("ranks.value",),
                numbers={"comparisons": inputs, "steps": losses},
            ),
        )
