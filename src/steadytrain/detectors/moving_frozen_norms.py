"""The running statistics of a frozen part of the model move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class MovingFrozenNorms(ScriptRule):
    """The weights of a pretrained part are frozen, and its batch norms go on taking in statistics.

    Means:
        `requires_grad = False` stops the optimizer, and not the running mean and variance: in training mode batch norms
        replace those of the earlier training by those of these batches. The features of the frozen part change though
        none of its weights do. After 32 steps a good part of the channels of such a norm has gone elsewhere. It is a
        note: with much data of another kind this may be what is wanted.

    Causes:
        - `model.train()` for a model whose backbone is frozen by `requires_grad` only
        - no fault: statistics of the new data are wanted

    Next:
        1. Call `eval()` on the frozen part after each `train()`, or override `train()` of the model.
        2. Compare the features of one image before and after the training.
    """

    share_min: float = threshold(0.25, "share of the channels whose statistics have clearly moved. Chosen")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.note(
                window,
                row,
                f"the weights of {row.place} and of what is in front of it are frozen, and its running statistics "
                f"move: {row.last:.0%} of the channels after {int(row.steps[-1])} steps",
                share=row.last,
            )
            for row in script_rows(window, "frozen-norm-moved")
            if row.last >= self.share_min
        )[:1]
