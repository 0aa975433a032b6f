"""A rank made fewer steps than the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import RankRule
from steadytrain.statistics.rank_rows import rank_rows


@final
@dataclass(frozen=True)
class UnevenRanks(RankRule):
    """A rank ended after its last batch while the others were in a further step, and they lost contact with it.

    Means:
        The ranks had different numbers of batches. A step of several ranks needs all of them, so the others fail
        in their next collective, or wait in it until a time limit.

    Causes:
        - a data set whose size the number of ranks does not divide, split without padding
        - shards, files or streams of different lengths
        - a filter, or a loader without `drop_last`, that leaves some ranks one batch less

    Next:
        1. Give all ranks the same number of batches: `DistributedSampler`, or `drop_last=True` in the loader.
        2. Where they cannot be equal, train inside `with Join([model]):` (`torch.distributed.algorithms`).
        3. Or let the ranks agree before each step whether all have a batch, by an `all_reduce` of a flag.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = rank_rows(window)
        found = [
            Symptom(
                name="uneven-ranks",
                severity="critical",
                first_step=min(int(steps), int(window.steps[-1])),
                last_step=int(window.steps[-1]),
                message=f"rank {rank} ended after its {int(steps):,} steps while others went on to step "
                f"{int(rows.of('went-on', rank)):,}: an uneven number of batches",
                signals=("ranks.value",),
                numbers={"rank": float(rank), "steps": steps},
            )
            for rank, steps in rows.ranks("ended-after")
        ]
        return tuple(found[:1])
