"""The optimizer steps at a learning rate of zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Aim, Detector
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.table_episodes import applied_cells


@final
@dataclass(frozen=True)
class ZeroLearningRate(Detector):
    """The learning rate is zero, step after step: the optimizer changes no weight.

    Means:
        Every step computes a gradient and then multiplies it by zero. The loss only follows the batches. The detector
        reads the rate of the first parameter group. It warns if the measured tensors did not move either, and the rate
        was zero from the first step, fell to zero in one step, or decayed to zero and stayed there for half as many
        steps as the decay took. Fewer steps after a decay are a note: the schedule has ended, and training goes on.

    Causes:
        - a warm-up schedule that begins at zero and is never stepped (`scheduler.step()` is missing)
        - a schedule in epochs with a warm-up from zero: its whole first epoch has a rate of zero
        - a warm-up that is longer than the run, counted in whole numbers (`step // warmup`)
        - a schedule whose length is shorter than the run, for example stepped once per micro-batch or per process
        - a rate of zero in the configuration, or one that a resume loaded from a finished run

    Next:
        1. Print `optimizer.param_groups[0]["lr"]` after each step and compare it with the plan.
        2. Call `scheduler.step()` once after each `optimizer.step()`, and give the schedule its length in those steps.
        3. After a resume: load the schedule's state, or set its length to that of the whole run.
    """

    needs: ClassVar[tuple[str, ...]] = ("learning_rate",)
    aim: ClassVar[Aim] = "progress"

    zero_steps: int = threshold(
        16,
        "steps in a row at zero before a report. Healthy schedules touch zero for one step: the first of a warm-up, "
        "the last of a decay, or a restart",
    )
    decayed_share: float = threshold(
        0.1, "a last rate above zero below this share of the largest one was a decay: the schedule has ended"
    )
    decay_steps_share: float = threshold(
        0.5, "of the steps that a decay took: with as many at zero the schedule was too short, and did not just end"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rate = window.applied("learning_rate")
        if len(rate) < self.zero_steps or rate.values[-self.zero_steps :].any():
            return ()
        first = int(np.flatnonzero(rate.values)[-1]) + 1 if rate.values.any() else 0
        if first == 0 and not holds_start(window.steps, stride=stride_of(window.steps)):
            return ()  # reported when the first of these steps was in view
        return (self._symptom(window, rate, first),)

    def _symptom(self, window: Window, rate: Series, first: int) -> Symptom:
        since, until = int(rate.steps[first]), int(rate.steps[-1])
        before = float(rate.values[first - 1]) if first else 0.0
        decayed = first > 0 and before < self.decayed_share * float(rate.values.max())
        over = until - since >= self.decay_steps_share * (since - int(rate.steps[0]))
        over = over and holds_start(window.steps, stride=stride_of(window.steps))
        moved = self._moved(window, since)
        weights = {True: "some weights move", False: "no weight moves", None: "no update was measured"}[moved]
        how = " from the first step on"
        if first:
            last = int(rate.steps[first - 1])
            how = f", after {before:.3g} at step {last}"
            weights += f"; the schedule ends with step {last}, and the run goes on" if decayed and over else ""
        return Symptom(
            name="zero-learning-rate",
            severity="note" if (decayed and not over) or moved is not False else "warning",
            first_step=since,
            last_step=until,
            message=f"the learning rate is 0 at {len(rate) - first} steps{how}: {weights}",
            signals=("learning_rate",),
            numbers={"steps": float(len(rate) - first), "rate_before": before},
        )

    def _moved(self, window: Window, since: int) -> bool | None:
        """Whether a measured tensor has moved at one of these steps; None where none was measured."""
        cells = applied_cells(window, "tensors", "update_ratio")
        if cells is None:
            return None
        updates = cells.values[cells.steps >= since]
        return bool((updates > 0.0).any()) if np.isfinite(updates).any() else None
