"""A target of noise that is uniform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UniformNoise(ScriptRule):
    """The noise that a denoiser predicts is uniform between 0 and 1, not standard normal.

    Means:
        The target of a squared error is uniform between 0 and 1. An input of the model of the same shape holds it, and
        the more of it the later the time that the model is given. So it is the noise of a diffusion model. Its mean is
        0.5 and its variance a twelfth, while schedules and samplers assume 0 and 1: the loss falls, and what is sampled
        does not look like the data.

    Causes:
        - `torch.rand_like` or `torch.rand` where `torch.randn_like` is meant
        - noise of another library in the range from 0 to 1

    Next:
        1. Draw the noise with `torch.randn_like`.
        2. Print mean and standard deviation of the noise: 0 and 1.
    """

    looks_min: int = threshold(4, "looks that find it")
    grows_min: float = threshold(
        0.15, "share of the noise that inputs at late times hold more than those at early ones; data hold it less"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"the target of the loss of {row.place} is noise that is uniform between 0 and 1, and an input "
                "of the model holds it: diffusion needs standard normal noise (torch.randn_like, not rand_like)",
                grows=row.last,
            )
            for row in script_rows(window, "uniform-noise")
            if len(row.steps) >= self.looks_min and (row.values > self.grows_min).all()
        )[:1]
