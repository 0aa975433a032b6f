"""All ranks train on the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import RankRule
from steadytrain.statistics.rank_rows import RankRows, rank_rows, ranks_named

GROUPS_MAX = 4


@final
@dataclass(frozen=True)
class SameDataOnRanks(RankRule):
    """Ranks get the same batches: together they train as one rank, at the price of all of them.

    Means:
        The ranks train one model, and a sample of the values that they give it was the same on all ranks, or on some of
        them, at every comparison, while it changed from step to step; or their losses were the same to the last bit,
        and their inputs not known to differ. Each of these ranks then computes the same gradient, and the batch is
        smaller than it looks. Some of the ranks are named only where one replica is on every rank: where ranks share
        the layers or tensors of a model, they get the same batches on purpose.

    Causes:
        - a loader without `DistributedSampler`, with one seed on all ranks
        - an iterable data set that does not split its stream by rank
        - a sampler that was made before the process group, with rank 0 of 1
        - a seed from `LOCAL_RANK`, which is the same on each node

    Next:
        1. Pass `sampler=DistributedSampler(dataset)` to the loader, and call `set_epoch` before each pass.
        2. Split an iterable data set by `torch.distributed.get_rank()`.
    """

    inputs_min: int = threshold(4, "comparisons in a row with the same inputs, each with others than the one before")
    of_pair_min: int = threshold(5, "the same for some of the ranks only: more pairs may be equal by chance")
    losses_min: int = threshold(16, "steps in a row with equal losses, to the last bit of a float32")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = rank_rows(window)
        inputs, losses = rows.of_all("same-inputs"), rows.of_all("same-losses")
        if not rows.is_one_model or rows.of_all("sharded"):
            return ()
        message = "all ranks train on the same batches: they compute one gradient several times"
        if inputs < self.inputs_min and losses < self.losses_min:
            if not (alike := self._alike(rows)):
                return ()
            named = [ranks_named(ranks) for ranks in alike]
            more = f" and {len(named) - GROUPS_MAX} more groups" if len(named) > GROUPS_MAX else ""
            each = ", each of them together," if len(named) > 1 else ""
            who = ", ".join(named[:GROUPS_MAX]) + more
            message = f"{who}{each} train on the same batches: they compute one gradient several times"
        return (
            Symptom(
                name="same-data-on-ranks",
                severity="warning",
                first_step=1,
                last_step=int(window.steps[-1]),
                message=message,
                signals=("ranks.value",),
                numbers={"comparisons": inputs, "steps": losses},
            ),
        )

    def _alike(self, rows: RankRows) -> list[list[str]]:
        """Groups of some ranks with the same batches. None where the script gives parts of the ranks a model of their
        own, or where the replicas never were equal: ranks that share a model by its layers or tensors get the same
        batches on purpose.
        """
        if rows.of_all("parted") or not rows.of_all("weights-together"):
            return []
        found: dict[str, list[str]] = {}
        for measure, least in (("same-inputs", self.of_pair_min), ("same-losses", self.losses_min)):
            for rank, earlier, count in rows.pairs(measure):
                if count >= least:
                    group = found.setdefault(earlier, [earlier])
                    group += [rank] if rank not in group else []
        return list(found.values())
