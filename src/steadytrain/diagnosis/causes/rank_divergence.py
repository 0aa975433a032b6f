"""Replicas that are not the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import fact, first_name, listed, one_rank, ruled_out, scales_apart, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class RankDivergence(Cause):
    """Parameters that should be equal on all ranks differ.

    Means:
        Replicas were equal and now differ although gradients are averaged: something changed only one of them. From
        then on ranks average gradients of different weights.

    Causes:
        - a decision on one rank: a skipped step, an early exit, a checkpoint that one rank loaded
        - another learning rate, loss scale or setting of the optimizer on one rank
        - a fault of one device; different seeds where weights are made
        - norm or position parameters that tensor parallelism does not synchronise (BLOOM)

    Next:
        1. Find which parameters differ, and since when.
        2. Broadcast from rank 0 and continue; take the decision on all ranks together.
        3. Compare a digest of all parameters every 100 steps.
    """

    axis = "distributed"
    base_rate = 8.0
    rivals = ("unsynchronized-gradients", "hardware-fault", "nondeterminism", "loss-scale-disagreement")
    expects = like("ranks", removed=("one-rank",))
    confirming = ("one-rank",)
    spared = ("drop-batch",)
    interventions = (
        Intervention(
            "broadcast",
            4,
            "broadcast the parameters of one rank",
            code="for p in model.parameters(): torch.distributed.broadcast(p.data, src=0)",
        ),
    )
    grade = "A"
    source = "audio #3749; Automodel PR 2468; BLOOM in TrainCheck 2506.14813"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "diverged-replicas", "rank-settings"),
                *listed(
                    case,
                    "rank_parameters_differ",
                    STRONG,
                    "parameters that differ between ranks: {names}",
                    invariant=True,
                ),
                *ruled_out(
                    fact(case, "ranks_synchronized") is False,
                    "gradients were not reduced over ranks, which is another cause",
                ),
                *ruled_out(scales_apart(case), "the ranks differ in their loss scale first, which is another cause"),
                *ruled_out(one_rank(case), "there is one process"),
            ),
            layer=first_name(case, "rank_parameters_differ"),
        )
