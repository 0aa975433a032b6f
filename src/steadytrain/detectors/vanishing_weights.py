"""Weights shrink towards zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.table_episodes import applied_cells

FIRST_STEP_MAX = 16
"""The first reading must be from one of these steps: later ones may follow what made the weights small."""


@final
@dataclass(frozen=True)
class VanishingWeights(Detector):
    """Most weight tensors have lost nine tenths of the norm that they began with.

    Means:
        The norm of each tensor is compared with its first reading; biases and tensors that begin at zero do not count.
        Half of them, or more, are below a tenth of it: a penalty or decay moves the weights, and not the loss. Outputs
        become constant, and the loss goes to that of a guess.

    Causes:
        - weight decay that is far too large: rate times decay is the share of each weight that an update removes
        - an L2 penalty that is summed over all weights with a factor that was meant for a mean
        - an average that shares its tensors with the model, and scales them down at each update
        - no fault: one small problem whose best weights are near zero

    Next:
        1. Print rate times decay; 1e-4 and less is usual.
        2. Print the parts of the loss separately: a penalty should be the smaller one.
        3. Train without decay and penalty for 200 steps and compare.
    """

    needs: ClassVar[tuple[str, ...]] = ("tensors.weight_norm",)
    aim: ClassVar[Aim] = "progress"
    spoils_weights: ClassVar[bool] = True

    shrunk_ratio: float = threshold(0.1, "norm over the first norm of the same tensor. Chosen")
    tensors_share: float = threshold(0.5, "share of the tensors that are so small")
    tensors_min: int = threshold(2, "tensors at least")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cells = applied_cells(window, "tensors", "weight_norm")
        if cells is None or not len(cells) or not holds_start(window.steps, stride=stride_of(window.steps)):
            return ()
        kept = np.array([not name.endswith("bias") for name in cells.rows])
        first = cells.values[0]
        kept &= np.isfinite(first) & (first > 0.0)
        if cells.steps[0] > FIRST_STEP_MAX or kept.sum() < self.tensors_min:
            return ()
        ratios = cells.values[:, kept] / first[kept]
        small = (ratios < self.shrunk_ratio).sum(1) >= max(self.tensors_min, self.tensors_share * kept.sum())
        if not small.any():
            return ()
        at = int(np.argmax(small))
        names = np.array(cells.rows)[kept][ratios[at] < self.shrunk_ratio]
        smallest = int(np.nanargmin(ratios[at]))
        name = np.array(cells.rows)[kept][smallest]
        return (
            Symptom(
                name="vanishing-weights",
                severity="warning",
                first_step=int(cells.steps[at]),
                last_step=int(window.steps[-1]),
                message=f"{len(names)} of {kept.sum()} weight tensors have lost nine tenths of their norm by step "
                f"{cells.steps[at]}: {name} shrank to {ratios[at, smallest]:.2g} of its first norm",
                signals=("tensors.weight_norm",),
                tensors=tuple(str(one) for one in names[:16]),
                numbers={"tensors": float(len(names)), "ratio": float(ratios[at, smallest])},
            ),
        )
