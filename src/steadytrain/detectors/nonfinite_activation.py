"""A module's output holds NaN or Inf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Cells, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.table_episodes import NAMES_MAX, Episode, episodes, unskipped_cells


@final
@dataclass(frozen=True)
class NonfiniteActivation(Detector):
    """A module's output holds NaN or Inf.

    Means:
        Some elements of an output in the forward pass are NaN or Inf. It is critical if the loss of the same steps is
        not finite, either. Start at the module named first: of the modules that were non-finite at `first_step`, it is
        the first in the model's order that contains none of the others. With a finite loss it is a warning if it began
        during the run, and a note if it was there from the first reading on: a mask of -inf on logits is no fault.

    Causes:
        - overflow of float16 (65,504): large activations, attention scores, a norm computed in half precision
        - an attention row whose keys are all masked: softmax over only -inf is NaN
        - log, sqrt, division or exp at or beyond the edge of their domain
        - weights that are NaN already (see nonfinite-weight), or an input that is
        - no fault: masks of -inf that a later softmax turns into zeros

    Next:
        1. Check whether weights were finite at `first_step`. If not, start there.
        2. Open the incident, if there is one: it names the operation and its line.
        3. Compare its headroom before: a slow rise to 1 is overflow (see precision-headroom). Run that part in
           bfloat16 or float32.
        4. For attention, look for rows without any key: use the finite minimum of the dtype instead of -inf.
    """

    needs: ClassVar[tuple[str, ...]] = ("modules.nonfinite",)
    nonfinite_rank: ClassVar[int | None] = 3
    spoils_weights: ClassVar[bool] = True

    elements_max: int = threshold(0, "non-finite elements of an output that are no fault: none. The count is exact")
    loss_steps: int = threshold(
        64,
        "a loss that turns non-finite this soon after a reading still belongs to it: chosen to cover the "
        "cadence of 50 steps at level standard",
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        cells = unskipped_cells(window, "modules", "nonfinite")
        if cells is None:
            return ()
        beyond = cells.values > self.elements_max
        if not beyond.any():
            return ()
        # A mask is non-finite from the first reading on, while the loss is finite: not the fault that comes later.
        measured = ~np.isnan(cells.values)
        masks = beyond[measured.argmax(axis=0), np.arange(len(cells.rows))] & self._loss_is_finite(window, cells, 0)
        found = [self._symptom(window, episode, cells, "note") for episode in episodes(window, cells, beyond & masks)]
        found += [self._symptom(window, episode, cells, None) for episode in episodes(window, cells, beyond & ~masks)]
        return tuple(sorted(found, key=lambda symptom: symptom.first_step))

    def _loss_is_finite(self, window: Window, cells: Cells, reading: int) -> bool:
        step = int(cells.steps[reading])
        loss = window.series("loss").between(step, step + self.loss_steps)
        return bool(len(loss)) and bool(np.isfinite(loss.values).all())

    def _symptom(self, window: Window, episode: Episode, cells: Cells, severity: Severity | None) -> Symptom:
        counts = cells.values[episode.first][episode.positions]
        names = _origins([row for row, count in zip(episode.rows, counts, strict=True) if count > self.elements_max])
        loss = window.series("loss").between(episode.first_step, episode.last_step + self.loss_steps)
        lost = not np.isfinite(loss.values).all() or not len(loss)
        first = f"module {names[0]}" if names[0][:1].isdigit() else names[0] or "the model's output"
        others = f" and {len(episode.rows) - 1} more modules" if len(episode.rows) > 1 else ""
        return Symptom(
            name="nonfinite-activation",
            severity=severity or ("critical" if lost else "warning"),
            first_step=episode.first_step,
            last_step=episode.last_step,
            message=f"{first}{others} put out NaN or Inf {episode.when()}"
            f"{'' if lost else ', and the loss stayed finite'}",
            signals=("modules.nonfinite",),
            tensors=tuple(names[:NAMES_MAX]),
            numbers={"modules": float(len(episode.rows)), "elements": float(np.nansum(counts))},
        )


def _origins(rows: list[str]) -> list[str]:
    """Those that hold no other of them first, both in the order of the model; the model itself ("") is last."""
    holds = {row: row == "" or any(other.startswith(row + ".") for other in rows) for row in rows}
    return sorted(rows, key=lambda row: (holds[row], row == ""))
