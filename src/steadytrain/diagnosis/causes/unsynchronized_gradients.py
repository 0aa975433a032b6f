"""Ranks that train alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import fails, listed, one_rank, ruled_out, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UnsynchronizedGradients(Cause):
    """Gradients are not averaged over the ranks before the update.

    Means:
        Each rank takes its own step, so the replicas drift apart. Each loss looks fine; the checkpoint holds one of
        several different models, and the effective batch is that of one rank.

    Causes:
        - `no_sync` around the wrong micro-batch; a forward outside the wrapper
        - a shard size of 1 (verl #7493), a group that holds one rank
        - parameters that the wrapper does not know

    Next:
        1. Compare a digest of the parameters over ranks after one step.
        2. Leave `no_sync` before the last micro-batch.
        3. Call the wrapped model, not the module in it.
    """

    axis = "distributed"
    base_rate = 8.0
    rivals = ("rank-divergence",)
    expects = like("ranks", removed=("one-rank", "synchronize"))
    confirming = ("synchronize", "one-rank")
    spared = ("drop-batch",)
    interventions = (
        Intervention(
            "synchronize",
            4,
            "average gradients over ranks",
            "synchronize",
            code="model = DistributedDataParallel(model)  # and call model(x), not model.module(x)",
        ),
    )
    grade = "A"
    source = "FunASR #3472; verl #7493; pytorch #69031; TrainCheck 2506.14813"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *fails(
                    case,
                    "ranks_synchronized",
                    CERTAIN,
                    "gradients were not reduced over ranks before the update",
                    invariant=True,
                ),
                *symptom(case, CERTAIN, "unshared-gradients"),
                *listed(case, "rank_parameters_differ", FAIR, "parameters that differ between ranks: {names}"),
                *ruled_out(one_rank(case), "there is one process"),
            ),
        )
