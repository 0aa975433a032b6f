"""The weight of a term of the loss grows all the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import FloatArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.script_rows import ScriptRow, script_rows

BLOCK_ROWS, START_ROWS = 32, 8
NORMAL = 1.4826


@final
@dataclass(frozen=True)
class GrowingWeight(ScriptRule):
    """A number that weighs one term of the loss against the others grows in every step, without a bound.

    Means:
        The sum next to the loss was read every 64 steps: the weight of one term, over that of the first, grew by the
        same amount, or by the same factor, from each reading to the next, up to the newest. It is a warning if the loss
        has also risen by a tenth of its progress since its best level, or if it stands while the term weighs five times
        the first one, else a note: a warm-up of a weight that has not ended looks the same. The other terms are learned
        less and less.

    Causes:
        - a warm-up without `min(1.0, ...)`: the weight of a KL term is `step / warm_up` for ever
        - a weight that is multiplied in each step, and not clipped
        - a dual variable that is raised while its constraint cannot be met
        - no fault: a warm-up that takes most of the run

    Next:
        1. Print each term of the loss and its weight.
        2. Bound the weight: `min(1.0, step / warm_up)`.
    """

    needs: ClassVar[tuple[str, ...]] = ("script.value", "loss")

    readings_min: int = threshold(5, "readings, 64 steps apart, of which the first is at step 64")
    weight_min: float = threshold(1.5, "newest weight over that of the first term: warm-ups end at 1 or below")
    grown_min: float = threshold(4.0, "newest weight over the first reading of it")
    far_ratio: float = threshold(
        5.0, "newest weight over that of the first term from which it is a warning if the loss stands still. Chosen"
    )
    gained_share: float = threshold(0.05, "share of the progress since the first reading below which the loss stands")
    apart_max: float = threshold(
        0.05, "how far a move from one reading to the next may be from the mean move, as a share"
    )
    risen_share: float = threshold(0.1, "share of the progress that the loss has lost since its best level")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = []
        for row in script_rows(window, "term-weight"):
            known = np.isfinite(row.values)
            steps, weights = row.steps[known], row.values[known].astype(float)
            if not self._grows(weights):
                continue
            risen = self._risen(window)
            told = f", and the loss has lost {risen:.0%} of its progress since its best level" if risen else ""
            found.append(
                Symptom(
                    name="growing-weight",
                    severity="warning" if risen or self._stands(window, int(steps[0]), weights) else "note",
                    first_step=int(steps[0]),
                    last_step=int(window.steps[-1]),
                    message=f"the weight of {_term(row)} grows all the time, from {weights[0]:.3g} at step {steps[0]} "
                    f"to {weights[-1]:.3g} at step {steps[-1]}{told}",
                    signals=("script.value", "loss"),
                    numbers={"weight": float(weights[-1]), "before": float(weights[0]), "lost_share": risen},
                )
            )
        return tuple(found[:1])

    def _grows(self, weights: FloatArray) -> bool:
        if len(weights) < self.readings_min or weights[0] <= 0.0:
            return False
        if weights[-1] < self.weight_min or weights[-1] < self.grown_min * weights[0]:
            return False
        moves = np.diff(weights), np.diff(np.log(np.maximum(weights, 1e-300)))
        return any(bool((np.abs(one - one.mean()) <= self.apart_max * one.mean()).all()) for one in moves)

    def _stands(self, window: Window, first_step: int, weights: FloatArray) -> bool:
        """Whether the loss has gained next to nothing since ``first_step``, and the weight is far above the others."""
        loss: Series = window.applied("loss")
        since = loss.values[loss.steps >= first_step]
        if weights[-1] < self.far_ratio or len(since) < 2 * BLOCK_ROWS:
            return False
        before, now, start = median(since[:BLOCK_ROWS]), median(since[-BLOCK_ROWS:]), median(loss.values[:START_ROWS])
        return start > before and before - now < self.gained_share * (start - before)

    def _risen(self, window: Window) -> float:
        """The share of the progress that the loss has lost; 0 if it is within noise, or the start is unknown."""
        loss: Series = window.applied("loss")
        if len(loss) < 4 * BLOCK_ROWS or not holds_start(window.steps, stride=stride_of(window.steps)):
            return 0.0
        count = len(loss) // BLOCK_ROWS
        levels = np.median(loss.values[-count * BLOCK_ROWS :].reshape(count, BLOCK_ROWS), axis=1)
        newest, best, start = float(levels[-1]), float(levels.min()), median(loss.values[:START_ROWS])
        late = loss.values[-2 * BLOCK_ROWS :]
        noise = NORMAL * median(np.abs(late - median(late)))
        share = (newest - best) / (start - best) if start > best else 0.0
        return share if share >= self.risen_share and newest - best > noise else 0.0


def _term(row: ScriptRow) -> str:
    """Such as ``term 2 of the loss of vae.py:40``."""
    place, _, term = row.place.rpartition(", ")
    return f"{term} of the loss of {place}"
