"""The data that reaches the first layer has an unusual scale, or is all zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

WHAT = {
    "zero-inputs": "are all zero ({value:.0f} elements a step)",
    "small-inputs": "are at most {value:.2g}: they may have been scaled twice",
    "byte-inputs": "are whole numbers from 0 to {value:.0f}: they are not scaled",
    "offset-inputs": "stand {value:.0f} of their standard deviations away from zero: they may have been normalised "
    "twice, or not at all",
}


@final
@dataclass(frozen=True)
class UnscaledInputs(ScriptRule):
    """The inputs of the first layer are all zero, tiny, bytes, or far from zero.

    Means:
        What the first linear or convolution layer gets was measured, after all preprocessing. If all of it is zero in
        each look, the model cannot learn anything from it: a warning. It is a note if the largest magnitude is below
        0.01 (bytes divided by 255 twice), if they are whole numbers up to 255, or if features stand more than ten of
        their standard deviations away from zero. Models with batch norm, layer norm or group norm correct the scale and
        are judged by zeros only.

    Causes:
        - a division by 255 in the data set and another one in the loop, or none
        - statistics of raw data that are applied to data that was already normalised
        - an integer division, or a cast to integers before the scaling
        - no fault: units in which such numbers are usual

    Next:
        1. Print mean, standard deviation, smallest and largest value of a batch right before the model.
        2. Normalise in one place: mean 0 and standard deviation 1, or 0 to 1 for images.
    """

    looks_min: int = threshold(4, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = [
            Symptom(
                name="unscaled-inputs",
                severity="warning" if measure == "zero-inputs" else "note",
                first_step=int(row.steps[0]),
                last_step=int(window.steps[-1]),
                message=f"the inputs of the first layer behind the loss of {row.place} {said.format(value=row.last)}",
                signals=("script.value",),
                numbers={"value": row.last},
            )
            for measure, said in WHAT.items()
            for row in script_rows(window, measure)
            if len(row.steps) >= self.looks_min
        ]
        return tuple(found[:1])
