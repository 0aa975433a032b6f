"""A loss over pairs that were never meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import fact, listed, ruled_out, seen, surveyed, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class ShapeBroadcast(Cause):
    """Two tensors of a loss were broadcast: every prediction is compared with every target.

    Means:
        `[N, 1]` minus `[N]` is `[N, N]`. The loss then has its minimum where every prediction is the mean of the
        targets, so the model learns the mean and stops. There is no error, only a warning in some losses.

    Causes:
        - a last dimension of 1 that was not squeezed
        - targets that lack a dimension of the model's output
        - a mask or weight whose shape differs from the loss that it multiplies

    Next:
        1. Make the shapes equal on the named line.
        2. Assert equal shapes before the loss.
        3. Train again: the model learned the mean of the targets.
    """

    axis = "loss"
    base_rate = 2.0
    rivals = ("loss-function-misuse", "learning-rate-too-low")
    expects = like("script", removed=("match-shapes",))
    confirming = ("match-shapes",)
    spared = ("learning-rate-third", "float32")
    interventions = (
        Intervention(
            "match-shapes",
            5,
            "give both sides of the loss one shape",
            "match-shapes",
            code="loss = mse_loss(output.squeeze(-1), targets)",
        ),
    )
    grade = "A"
    source = "documentation of torch.nn.functional.mse_loss and its warning"

    def signature(self, case: Case) -> Signature:
        # A survey reads the shapes of loss functions, and no products.
        outer = seen(case, "broadcast-loss") is not None and not fact(case, "broadcast")
        return Signature(
            (
                *listed(case, "broadcast", CERTAIN, "the loss broadcasts: {names}", invariant=True),
                *symptom(case, CERTAIN if outer else STRONG, "broadcast-loss", invariant=outer),
                *symptom(case, HINT, "plateau", "no-learning"),
                *ruled_out(
                    surveyed(case) and not fact(case, "broadcast") and seen(case, "broadcast-loss") is None,
                    "no two shapes were broadcast in the loss",
                ),
            ),
        )
