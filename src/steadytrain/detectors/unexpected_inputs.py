"""The inputs of a pretrained model are not those that its batch norms expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UnexpectedInputs(ScriptRule):
    """The first batch norm of a pretrained model gets batches that its running statistics do not expect.

    Means:
        The running mean and variance were loaded, or come from an earlier training. In each of the first steps nearly
        all channels of the first batch norm have another mean, by three standard deviations, or another variance, by a
        factor of four. Inputs that are normalised as in that training change few channels so far. It is a note: data of
        another kind may do the same.

    Causes:
        - images between 0 and 1, or 0 and 255, for a model whose training had `Normalize(mean, std)`
        - a scaler that the earlier training had and this one has not, or that was fitted anew
        - no fault: data of another kind

    Next:
        1. Take the transform that belongs to the weights (`weights.transforms()`, the image processor of the model).
        2. Print mean and standard deviation of a batch for each channel.
    """

    share_min: float = threshold(0.8, "share of the channels. Chosen")
    looks_min: int = threshold(3, "steps, of the first four, in which it has to be so")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.note(
                window,
                row,
                f"the batches that {row.place} gets are not what its running statistics from an earlier training "
                f"expect, in {row.values.min():.0%} of the channels: its inputs may not be scaled as they were",
                share=float(row.values.min()),
            )
            for row in script_rows(window, "unexpected")
            if len(row.values) >= self.looks_min and (row.values >= self.share_min).all()
        )[:1]
