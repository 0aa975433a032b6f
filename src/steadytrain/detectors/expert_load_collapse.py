"""Most experts of a mixture get nothing to learn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Cells, FloatArray, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.layer_names import Stack, experts
from steadytrain.statistics.rolling_baseline import stride_of
from steadytrain.statistics.table_episodes import NAMES_MAX, Episode, episodes

STRETCH_STEPS = 64
"""An expert that had a gradient in any of so many steps is in use. Small batches do not reach every one in a step."""


@final
@dataclass(frozen=True)
class ExpertLoadCollapse(Detector):
    """Most experts of a mixture get no gradient: the router sends all tokens to a few.

    Means:
        In windows of 64 steps more than half of a layer's experts never got a gradient, or one expert got nearly all of
        it. Experts without tokens do not learn and so get none later: the router does not recover unaided. The loss
        still falls; the model loses capacity. The detector finds experts by names with `experts.N.`; it cannot see
        experts stored as one stacked tensor. "critical" means that a quarter or fewer are left.

    Causes:
        - no balancing loss or bias, or one whose weight is too small or lost in a refactoring
        - a router whose logits grow: in low precision, without a z-loss, with a learning rate that is too high
          (2202.08906)
        - a router that was initialised too large or with unequal biases
        - a checkpoint whose experts were loaded in another order than the router expects

    Next:
        1. Log the router's load for each expert, and the entropy of its output.
        2. Balancing loss of 1e-2, or a bias for each expert that follows its load (2408.15664); router in float32 with
           z-loss 1e-3.
        3. From a checkpoint before `first_step`, force balanced routing for some hundred steps and compare.
    """

    needs: ClassVar[tuple[str, ...]] = ("gradient_norms",)

    idle_share: float = threshold(0.5, "experts without any gradient in 64 steps: more than half of them. Chosen")
    critical_share: float = threshold(0.75, "the same for a critical symptom: a quarter of the capacity is left")
    one_share: float = threshold(
        0.95,
        "share of one expert in the squared gradients of all in the layer: the others learn "
        "almost nothing. In a healthy small mixture of 8 the largest had up to 0.6",
    )
    experts_min: int = threshold(4, "fewer experts are too few to call most idle")
    sustained_readings: int = threshold(
        2, "consecutive windows of 64 steps: at the start a router may need one to spread its load"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        if len(window.gradient_norms) != len(window):
            return ()
        mixtures = [mixture for mixture in experts(window.tensor_names) if len(mixture.members) >= self.experts_min]
        found = [symptom for mixture in mixtures for symptom in self._of(window, mixture)]
        return tuple(sorted(found, key=lambda symptom: symptom.first_step))

    def _of(self, window: Window, mixture: Stack) -> list[Symptom]:
        applied = ~(window.skipped | window.refused)
        steps = window.steps[applied]
        if not len(steps):
            return []
        norms = np.where(np.isfinite(window.gradient_norms), np.maximum(window.gradient_norms, 0.0), 0.0)[applied]
        squares = np.stack([np.square(norms[:, at], dtype=np.float64).sum(axis=1) for at in mixture.members], axis=1)
        stretch = steps // (STRETCH_STEPS * stride_of(steps))
        starts = np.flatnonzero(np.diff(stretch, prepend=stretch[0] - 1))
        whole = np.diff(np.append(starts, len(steps))) >= STRETCH_STEPS / 2
        if not whole.any():
            return []
        idle = (np.add.reduceat((squares > 0).astype(np.int64), starts, axis=0) == 0)[whole]
        sums = np.add.reduceat(squares, starts, axis=0)[whole]
        total = sums.sum(axis=1)
        largest = np.divide(sums.max(axis=1), total, out=np.zeros(len(total)), where=total > 0)
        beyond = ((idle.mean(axis=1) > self.idle_share) | (largest > self.one_share)) & (total > 0)
        cells = Cells(steps[starts[whole]], (mixture.name,), largest[:, None])
        return [
            self._symptom(window, mixture, episode, idle[episode.first : episode.last + 1], cells.values, steps)
            for episode in episodes(window, cells, beyond[:, None], readings=self.sustained_readings)
        ]

    def _symptom(
        self, window: Window, mixture: Stack, episode: Episode, idle: np.ndarray, largest: FloatArray, steps: np.ndarray
    ) -> Symptom:
        always = [mixture.block(at) for at in np.flatnonzero(idle.mean(axis=0) > self.idle_share)]
        share = len(always) / len(mixture.members)
        one = float(largest[episode.first : episode.last + 1].max())
        last_step = min(episode.last_step + (STRETCH_STEPS - 1) * stride_of(steps), int(steps[-1]))
        what = f"{len(always)} of {len(mixture.members)} experts had no gradient"
        if share <= self.idle_share:
            what = f"one of {len(mixture.members)} experts had {one:.0%} of the gradient"
        return Symptom(
            name="expert-load-collapse",
            severity="critical" if share >= self.critical_share else "warning",
            first_step=episode.first_step,
            last_step=last_step,
            message=f"in {mixture.name.rstrip('.')} {what} from step {episode.first_step} to {last_step}",
            signals=("gradient_norms",),
            tensors=tuple(always[:NAMES_MAX]),
            numbers={"experts": float(len(mixture.members)), "idle": float(len(always)), "largest_share": one},
        )
