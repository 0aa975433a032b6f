"""Ranks with different loss scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, Cause, Signature
from steadytrain.diagnosis.interventions import BFLOAT16, LOSS_SCALE
from steadytrain.diagnosis.signs import above, fact, listed, one_rank, ruled_out, scales_apart, surveyed, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class LossScaleDisagreement(Cause):
    """Ranks, or a scaler and what it scales, do not agree on the loss scale.

    Means:
        Each rank detects overflows separately: one skips a step that the others take, or ranks average gradients with
        different scales. Replicas diverge, or the run hangs.

    Causes:
        - a scaler per rank with sharded gradients, so that only one sees the overflow (fairscale #180)
        - a scale that was restored on one rank, or not saved (pytorch #67590)

    Next:
        1. Compare scale and skip count over ranks.
        2. Reduce `found_inf` over ranks: a sharded scaler.
        3. bfloat16 needs no scale.
    """

    axis = "distributed"
    base_rate = 2.0
    rivals = ("half-precision-overflow", "gradient-underflow", "clip-before-unscale", "unsynchronized-gradients")
    expects = like("half")
    confirming = ("float32",)
    spared = ("drop-batch",)
    interventions = (BFLOAT16, LOSS_SCALE)
    grade = "B"
    source = "fairscale #180; pytorch #67590, #99640; ace PR 850"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *(symptom(case, CERTAIN, "rank-settings") if scales_apart(case) else ()),
                *symptom(case, FAIR, "loss-scale-collapse"),
                *above(case, "scaler_skips", 3.0, HINT, "the scaler skipped {value} steps in the survey"),
                *listed(case, "rank_parameters_differ", FAIR, "parameters that differ between ranks: {names}"),
                *above(
                    case,
                    "rank_scales_differ",
                    0.0,
                    CERTAIN,
                    "in {value} steps ranks had different loss scales, or one skipped an update alone",
                    invariant=True,
                ),
                *ruled_out(
                    surveyed(case) and fact(case, "scaler") is not True and not scales_apart(case),
                    "there is no gradient scaler",
                ),
                *ruled_out(one_rank(case), "there is one process"),
            ),
        )
