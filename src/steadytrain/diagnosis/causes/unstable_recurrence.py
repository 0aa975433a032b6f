"""A recurrent state that grows in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import ruled_out, seen, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UnstableRecurrence(Cause):
    """A recurrence multiplies its state by a factor above 1 in every step, so the state grows along the sequence.

    Means:
        `h = a * h + u` forgets if `a` is below 1, and grows exponentially if it is above. Where `a` is above 1 whatever
        the weights are, no training mends it: the last places of a sequence hold the largest numbers, the loss begins
        far too high, and the gradients of long sequences overflow.

    Causes:
        - the minus sign is missing in the exponent of a state-space layer: `exp(dt * A)` with a positive `A`
        - `1 + gate` where `1 - gate` is meant

    Next:
        1. Make every factor lie between 0 and 1: `torch.exp(-softplus(rate))`, `torch.sigmoid(gate)`.
        2. Compare the norm of the state at the first and the last place.
    """

    axis = "model"
    base_rate = 1.0
    rivals = ("learning-rate-too-high", "bad-initialization", "unclipped-gradients")
    expects = like("script")
    spared = ("drop-batch", "float32")
    interventions = (
        Intervention(
            "decaying-state",
            4,
            "keep every factor of the state between 0 and 1",
            code="a = torch.exp(-rate)  # with rate > 0",
        ),
    )
    grade = "B"
    source = "Mamba (Gu, Dao 2023) and its reference code, in which A is -exp(A_log)"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *symptom(case, CERTAIN, "growing-state", invariant=True),
                *symptom(case, HINT, "no-learning", "plateau", "exploding-gradients"),
                *ruled_out(seen(case, "growing-state") is None, "no recurrence grows by construction"),
            )
        )
