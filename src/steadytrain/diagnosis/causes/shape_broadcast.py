"""A loss over pairs that were never meant."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import Signs, fact, listed, ruled_out, seen, surveyed, symptom
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
            code="loss = mse_loss(output, targets.reshape(output.shape))",
            of=("column",),
        ),
        Intervention(
            "targets-without-table",
            5,
            "make the targets in the shape of the predictions: they were a table before the loss",
            code="rewards = rewards.unsqueeze(-1)  # where [N] meets [N, 1] before the loss and makes [N, N]",
            of=("table",),
        ),
    )
    grade = "A"
    source = "documentation of torch.nn.functional.mse_loss and its warning"

    def signature(self, case: Case) -> Signature:
        # A survey reads the shapes of loss functions, and no products.
        outer = seen(case, "broadcast-loss") is not None and not fact(case, "broadcast")
        return Signature(
            (
                *_shapes(case),
                *symptom(case, CERTAIN if outer else STRONG, "broadcast-loss", invariant=outer),
                *symptom(case, HINT, "plateau", "no-learning"),
                *ruled_out(
                    surveyed(case) and not fact(case, "broadcast") and seen(case, "broadcast-loss") is None,
                    "no two shapes were broadcast in the loss",
                ),
            ),
        )


def _shapes(case: Case) -> Signs:
    """The sign of the shapes that a survey saw meet. Its numbers say whether the targets were a table before."""
    lines = fact(case, "broadcast") or ()
    table = any(_TABLE.search(str(line)) for line in lines)
    signs = listed(case, "broadcast", CERTAIN, "the loss broadcasts: {names}", invariant=True)
    return tuple(replace(one, numbers={**one.numbers, "table" if table else "column": 1.0}) for one in signs)


_TABLE = re.compile(r" with \[(\d+), \1\]")
