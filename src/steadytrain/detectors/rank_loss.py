"""The loss of one rank is many times that of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import RankRule
from steadytrain.statistics.rank_rows import rank_rows


@final
@dataclass(frozen=True)
class RankLoss(RankRule):
    """One rank's loss is many times that of the other ranks, step after step.

    Means:
        The ranks train one model on shares of the same data, so their losses should have the same size. The rank with
        the larger loss dominates the average of the gradients.

    Causes:
        - a loss that is summed, or divided by another count, on one rank
        - a factor for the rank, such as the world size, that is applied twice
        - data of another kind, or damaged, on one rank

    Next:
        1. Give two ranks the same batch and compare their losses.
        2. Look at the reduction of the loss, and at the data of the rank.
    """

    ratio_min: float = threshold(8.0, "median ratio of the losses in 16 steps. Ranks with other data differ by less")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = rank_rows(window)
        found = [
            Symptom(
                name="rank-loss",
                severity="warning",
                first_step=int(rows.of("loss-ratio-since", rank)),
                last_step=int(window.steps[-1]),
                message=f"the loss of rank {rank} is about {ratio:.2g} times that of {rows.others(rank)}, "
                "step after step",
                signals=("ranks.value",),
                numbers={"rank": float(rank), "ratio": ratio},
            )
            for rank, ratio in rows.ranks("loss-ratio")
            if ratio >= self.ratio_min and rows.is_one_model
        ]
        return tuple(found[:1])
