"""Inputs whose format rounds away what differs between rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class CoarseInputs(ScriptRule):
    """An input lies so far from zero that its format rounds the differences between rows away.

    Means:
        A float32 has 24 bits: of a time near 1.7e9 seconds it keeps multiples of 128. The model then takes a phase, a
        difference or a remainder of numbers whose fine part is gone, and no training brings it back.

    Causes:
        - unix times, counters or coordinates that become float32 before an offset is taken off
        - positions of a long row in float16 or bfloat16

    Next:
        1. Take the offset off in float64: `(time - time[0]).float()`.
        2. Compute phases and differences in float64, and convert the result.
    """

    share_max: float = threshold(
        1e-3,
        "distance of neighbouring numbers over the standard deviation of the rows: above it a row has less than a "
        "thousand different values within one standard deviation. Scaled inputs are at 1e-7. In 16 bits a hundredth "
        "of it counts",
    )
    looks_min: int = threshold(2, "looks that find it, 16 steps apart")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        coarse = [
            row
            for row in script_rows(window, "coarse-input")
            if len(row.steps) >= self.looks_min and row.values.min() > self.share_max
        ]
        return tuple(
            self.warning(
                window,
                row,
                f"the input {row.place} of the model is so large that its numbers are {row.last:.2g} standard "
                "deviations apart: finer differences between rows are rounded away",
                share=row.last,
            )
            for row in coarse[:1]
        )
