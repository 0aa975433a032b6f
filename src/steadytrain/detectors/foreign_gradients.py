"""Gradients of a loss of another optimizer are applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ForeignGradients(ScriptRule):
    """An update also applies the gradient that a loss of another optimizer has left.

    Means:
        A backward reached these parameters, then another optimizer made its update, and the next backward found the
        gradient still there and added its own. The two oppose each other, so they are not meant to be added up: the
        update works against its own loss.

    Causes:
        - a GAN that clears all gradients once an iteration: the generator's loss leaves a gradient in the
          discriminator, and the discriminator's update applies it
        - an actor's loss that leaves a gradient in the critic
        - `zero_grad` of this optimizer after its backward, or only at the begin of the iteration

    Next:
        1. Call `zero_grad` of each optimizer right before the backward of its own loss.
        2. Or freeze the other model (`requires_grad_(False)`) while the loss goes through it.
    """

    looks_min: int = threshold(3, "looks that find it")
    cosine_max: float = threshold(
        -0.1, "median cosine of both gradients: losses that are added up on purpose do not oppose each other. Chosen"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        for row in script_rows(window, "foreign"):
            cosine = float(np.median(row.values)) if len(row.steps) >= self.looks_min else 0.0
            if cosine < self.cosine_max:
                return (
                    self.warning(
                        window,
                        row,
                        "the update also applies a gradient that a loss of another optimizer left, and that opposes "
                        f"its own (cosine {cosine:.2f}): gradients are not cleared before the backward",
                        cosine=cosine,
                        looks=float(len(row.steps)),
                    ),
                )
        return ()
