"""Ranks with different numbers of batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import fact, one_rank, ruled_out, seen, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UnevenRanks(Cause):
    """One rank has fewer batches than the others.

    Means:
        Its loop ends first. The other ranks begin a step that needs it, and fail ("Connection closed by peer") or
        wait until a time limit. The numbers of the run are sound until then.

    Causes:
        - a data set whose size the number of ranks does not divide, split without padding
        - shards, files or streams of different lengths
        - a filter, or a loader without `drop_last`, that leaves some ranks one batch less

    Next:
        1. Give all ranks the same number of batches: `DistributedSampler`, or `drop_last=True`.
        2. Where they cannot be equal, train inside `with Join([model]):`.
    """

    axis = "distributed"
    base_rate = 4.0
    expects = like("script")
    interventions = (
        Intervention(
            "even-batches",
            3,
            "give all ranks the same number of batches",
            code="loader = DataLoader(data, batch_size=n, sampler=DistributedSampler(data, drop_last=True))",
        ),
        Intervention(
            "join-ranks",
            3,
            "let ranks with more batches go on without those that have ended",
            code="with Join([model]):  # torch.distributed.algorithms.join; the loop inside",
        ),
    )
    grade = "A"
    source = "pytorch #38174; tutorial on uneven inputs with Join"

    def signature(self, case: Case) -> Signature:
        found = fact(case, "ranks_uneven")
        told = found if isinstance(found, Mapping) else {}
        text = f"rank {told.get('rank')} ended after its {told.get('steps')} steps; others were in step "
        return Signature(
            (
                *when(bool(told), CERTAIN, f"{text}{told.get('reached')}", "fact ranks_uneven", invariant=True),
                *symptom(case, CERTAIN, "uneven-ranks"),
                *ruled_out(one_rank(case), "there is one process"),
                *ruled_out(not told and seen(case, "uneven-ranks") is None, "no rank ended before the others"),
            ),
        )
