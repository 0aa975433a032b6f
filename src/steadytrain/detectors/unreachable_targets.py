"""Targets that the last operation of the model cannot give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

GIVES = {
    "unreachable-sigmoid": "a sigmoid made the predictions, which are between 0 and 1",
    "unreachable-softmax": "a softmax made the predictions, which are between 0 and 1",
    "unreachable-tanh": "a tanh made the predictions, which are between -1 and 1",
    "unreachable-relu": "a ReLU made the predictions, which are not below 0",
    "unreachable-softplus": "a softplus made the predictions, which are not below 0",
    "unreachable-probability": "a binary cross-entropy takes targets between 0 and 1",
}
"""Measures of the table ``script``, and what bounds the targets there."""


@final
@dataclass(frozen=True)
class UnreachableTargets(ScriptRule):
    """Targets lie outside of what the operation behind the predictions can give.

    Means:
        The graph of the loss shows that a sigmoid, tanh, softmax, ReLU or softplus made the predictions, and its saved
        tensors hold targets beyond its ends. No training reaches those: the loss stays above the distance to the
        nearest end, and the units saturate on the way there. A binary cross-entropy whose targets are not between 0
        and 1 (masks of 0 and 255, labels of -1 and 1) has no minimum. Targets at an end, and single ones beyond it, are
        left alone.

    Causes:
        - a last activation of a classifier in a model for regression
        - targets that are standardised and predictions that are positive
        - a mask that was not divided by 255, or labels of -1 and 1, in a binary cross-entropy

    Next:
        1. Print the smallest and the largest target beside those of the predictions.
        2. Remove the last activation, or bring the targets into its range.
    """

    states_fact: ClassVar[bool] = True
    looks_min: int = threshold(2, "looks that find it: the loss is made in the same way each time")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"{row.last:.0%} of the targets of the loss of {row.place} cannot be reached: {gives}",
                share=row.last,
            )
            for measure, gives in GIVES.items()
            for row in script_rows(window, measure)
            if len(row.steps) >= self.looks_min
        )[:1]
