"""A target of noise that is not in the model's input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UnrelatedNoise(ScriptRule):
    """The target is fresh noise that has nothing to do with the model's input.

    Means:
        The target of a squared error is standard normal noise of the shape of an input of the model, and the two are
        not correlated in any look. Nothing in the input tells the target, so the loss stays at its variance, 1.

    Causes:
        - a diffusion model whose noise is drawn once for the input and once more for the target
        - a function with `noise=None` that draws its own noise, called without the noise
        - targets that were shuffled, or replaced by noise

    Next:
        1. Draw the noise once, and pass it on: `x = q_sample(x0, t, noise)`, `loss = mse(model(x, t), noise)`.
        2. Print the correlation of input and target of one batch.
    """

    looks_min: int = threshold(4, "looks that find it")
    errors_max: float = threshold(
        5.0, "correlation in standard errors: chance reaches 5 once in a million. Noise in the input reaches hundreds"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"the target of the loss of {row.place} is standard noise, and no input of the model has "
                "anything of it: it may be drawn twice",
                standard_errors=row.last,
            )
            for row in script_rows(window, "noise-correlation")
            if len(row.steps) >= self.looks_min and (row.values < self.errors_max).all()
        )[:1]
