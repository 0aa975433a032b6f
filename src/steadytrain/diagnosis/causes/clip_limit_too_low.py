"""A clip limit that leaves next to nothing of each gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import not_finite, ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ClipLimitTooLow(Cause):
    """Gradients are clipped to a small part of their usual length, and each update with them.

    Means:
        The length of an update of SGD is the rate times the length of the clipped gradient. With a limit far below the
        usual norm every update has this tiny length, whatever the loss: training creeps.

    Causes:
        - a limit of another model, optimizer or reduction of the loss
        - a typing error: 0.001 for 1.0
        - an adaptive limit that is fed with the norms after clipping, so that it can only fall

    Next:
        1. Log the norm before clipping for some hundred steps.
        2. Set the limit at the ninetieth percentile of it.
    """

    axis = "optimizer"
    base_rate = 1.0
    rivals = ("learning-rate-too-low", "clip-before-unscale")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "raise-limit",
            5,
            "raise the limit to the norm of nine in ten gradients",
            code="torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)",
            of=("choking-clip",),
        ),
        Intervention(
            "norms-before-clipping",
            5,
            "let an adaptive limit follow the norms before clipping",
            code="average = 0.99 * average + 0.01 * clip_grad_norm_(parameters, limit)  # it returns the norm before",
            of=("shrinking-clip",),
        ),
    )
    grade = "B"
    source = "Pascanu and others 1211.5063 on the choice of the limit"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "choking-clip", "shrinking-clip", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau"),
                *ruled_out(
                    seen(case, "choking-clip", "shrinking-clip") is None, "no clip was seen that leaves so little"
                ),
                *ruled_out(not_finite(case), "short steps make nothing infinite", "symptoms"),
            )
        )
