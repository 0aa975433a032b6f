"""A parameter holds NaN or Inf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.table_episodes import episodes, loss_change, unskipped_cells


@final
@dataclass(frozen=True)
class NonfiniteWeight(Detector):
    """A parameter holds NaN or Inf after its update.

    Means:
        The weights are damaged. Every result that uses such an element is NaN from here on, and no later update repairs
        it: NaN plus anything is NaN. Only a checkpoint from before `first_step` helps. It is a note if the parameter
        had its non-finite elements from the first reading on and the loss stays finite (a learned mask that starts at
        -inf).

    Causes:
        - a gradient that was NaN or Inf was applied (see nonfinite-gradient), or clipped by a norm that was Inf
        - Adam divided by a second moment that underflowed to zero with an epsilon that its dtype rounds to zero
        - the update overflowed the weight's dtype: float16, or a learning rate far too high
        - a checkpoint that was damaged, or written while the weights already were

    Next:
        1. Look for the first gradient or optimizer state that was not finite, at or before `first_step`.
        2. Go back to a checkpoint from before. Check it: all elements finite, optimizer state included.
        3. Guard the update: steadytrain's `stop` policy refuses a step whose gradients are not finite.
    """

    needs: ClassVar[tuple[str, ...]] = ("tensors.weight_nonfinite",)
    nonfinite_rank: ClassVar[int | None] = 6
    spoils_weights: ClassVar[bool] = True

    elements_max: int = threshold(0, "non-finite elements of a parameter that are no fault: none. The count is exact")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cells = unskipped_cells(window, "tensors", "weight_nonfinite")
        if cells is None:
            return ()
        found = []
        for episode in episodes(window, cells, cells.values > self.elements_max):
            counts = cells.values[episode.first : episode.last + 1][:, episode.positions]
            constant = episode.first == 0 and bool((np.nanmax(counts, axis=0) == np.nanmin(counts, axis=0)).all())
            harmless = constant and len(counts) > 1 and np.isfinite(loss_change(window, 0, episode.last_step))
            elements = float(np.nansum(counts[-1]))
            found.append(
                Symptom(
                    name="nonfinite-weight",
                    severity="note" if harmless and len(window.applied("loss")) else "critical",
                    first_step=episode.first_step,
                    last_step=episode.last_step,
                    message=f"{episode.who('parameters')} held NaN or Inf {episode.when()}: {elements:.0f} elements",
                    signals=("tensors.weight_nonfinite",),
                    tensors=episode.names,
                    numbers={
                        "tensors": float(len(episode.rows)),
                        "tensors_measured": float(len(cells.rows)),
                        "elements": elements,
                    },
                )
            )
        return tuple(found)
