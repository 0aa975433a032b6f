"""A residual of compressed gradients that is sent again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class KeptResidual(Cause):
    """What was sent of a compressed gradient stays in its residual (error feedback), and is sent again.

    Means:
        Each step applies old gradients again, a little larger each time. The loss falls at first, then swings and
        grows. A lower rate only delays that.

    Causes:
        - the whole sum is stored as the new residual
        - the sent part is cleared in a copy

    Next:
        1. Compare over some steps what was sent plus the residual with the sum of the gradients: they must be equal.
        2. Take the sent part out of the residual itself.
    """

    axis = "optimizer"
    base_rate = 1.0
    rivals = ("learning-rate-too-high", "learning-rate-too-low")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "keep-the-rest",
            4,
            "take what was sent out of the residual",
            code="residual[sent] = 0  # or: residual = corrected - sent",
        ),
    )
    grade = "B"
    source = "1809.07599 and 1809.10505 on error feedback"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "kept-residual", invariant=True),
                *symptom(case, HINT, "divergence", "oscillation"),
                *ruled_out(seen(case, "kept-residual") is None, "no residual keeps what was sent"),
            )
        )
