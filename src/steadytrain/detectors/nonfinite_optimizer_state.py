"""The optimizer's running means hold NaN or Inf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.table_episodes import episodes, unskipped_cells

COLUMNS = ("first_moment_nonfinite", "second_moment_nonfinite")


@final
@dataclass(frozen=True)
class NonfiniteOptimizerState(Detector):
    """The optimizer's running means hold NaN or Inf.

    Means:
        A bad gradient has entered the state. A NaN in a running mean stays forever and turns the weight NaN at the next
        step, even if the update that brought it was multiplied by zero. An Inf in the second moment is silent: the
        update becomes zero, and the element stays frozen while everything else goes on.

    Causes:
        - a gradient that was NaN or Inf was applied, or clipped by multiplying it with zero or NaN
        - the square of a finite gradient overflowed: state in float16 above 256, or in float32 above 1e19
        - a step-skipping rule that zeroes the update and still feeds the moments
        - a damaged checkpoint of the optimizer

    Next:
        1. Find the step: nonfinite-gradient at or before `first_step` is the cause; this is the lasting damage.
        2. Go back to a checkpoint from before it, or reset the moments of the named tensors and warm up again.
        3. Check gradients before `optimizer.step()`, not the loss: skip the call, do not scale the update.
        4. Keep optimizer state in float32.
    """

    needs: ClassVar[tuple[str, ...]] = tuple(f"tensors.{column}" for column in COLUMNS)
    nonfinite_rank: ClassVar[int | None] = 6
    spoils_weights: ClassVar[bool] = True

    elements_max: int = threshold(0, "non-finite elements of a moment that are no fault: none. The count is exact")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = []
        for column in COLUMNS:
            cells = unskipped_cells(window, "tensors", column)
            if cells is None:
                continue
            kind = column.split("_")[0]
            for episode in episodes(window, cells, cells.values > self.elements_max):
                elements = float(np.nansum(cells.values[episode.last][episode.positions]))
                found.append(
                    Symptom(
                        name="nonfinite-optimizer-state",
                        severity="critical",
                        first_step=episode.first_step,
                        last_step=episode.last_step,
                        message=f"the optimizer's {kind} moment of {episode.who('parameters')} held NaN or Inf "
                        f"{episode.when()}: {elements:.0f} elements",
                        signals=(f"tensors.{column}",),
                        tensors=episode.names,
                        numbers={
                            "tensors": float(len(episode.rows)),
                            "tensors_measured": float(len(cells.rows)),
                            "elements": elements,
                        },
                    )
                )
        # Both moments of one gradient went bad at once: one fault, told of the one that shows more.
        told: dict[int, Symptom] = {}
        for symptom in found:
            before = told.get(symptom.first_step)
            if before is None or symptom.numbers["tensors"] > before.numbers["tensors"]:
                told[symptom.first_step] = symptom
        return tuple(told[step] for step in sorted(told))
