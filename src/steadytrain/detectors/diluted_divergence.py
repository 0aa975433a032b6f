"""A divergence that is smaller than meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class DilutedDivergence(ScriptRule):
    """A divergence is divided by the number of classes, or by the square of its temperature, and hardly counts.

    Means:
        `kl_div` with the reduction `mean` divides by all elements, classes included: with 100 classes the term is a
        hundredth of the divergence. A softmax at the temperature T makes gradients 1 / T² as large. Beside a loss of
        the labels a student then learns next to nothing from its teacher. A note: the weight of the term may make up
        for it. This is read in the source.

    Causes:
        - `F.kl_div(p, q)` or `nn.KLDivLoss()` without a reduction: the default is the mean over all elements
        - `log_softmax(scores / T)` and `softmax(teacher / T)`, and no `T * T` behind the divergence

    Next:
        1. `reduction="batchmean"`.
        2. Multiply the divergence by `T * T`.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = ((row, says) for kind, says in SAID.items() for row in script_rows(window, kind)[:1])
        return tuple(self.note(window, row, f"{row.place} {says}") for row, says in found)[:1]


SAID = {
    "averaged-divergence": "takes the mean of a divergence over the classes, too, so it counts as many times less as "
    'there are classes: reduction="batchmean" is meant',
    "unsquared-temperature": "adds a divergence at a temperature without the square of the temperature, so it hardly "
    "counts beside the labels",
}
"""Measures of the table ``script``, and what the line does."""
