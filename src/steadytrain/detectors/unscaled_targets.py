"""Targets in raw units: the learning rate does not reach them, or their gradients make the loss explode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UnscaledTargets(ScriptRule):
    """The targets are far away, and the predictions do not come nearer, or leave at once.

    Means:
        The targets of a squared error lie more than ten of their standard deviations from the predictions, and in the
        first 32 updates the predictions went less than a ten-thousandth of the way. An optimizer like Adam moves each
        weight by about its rate, however large the loss: the way takes thousands of updates in which nothing else is
        learned. A rate that rises (a warm-up) is waited for, and SGD, whose steps grow with the distance, gets there
        soon. Or such targets, or some that vary by more than a hundred, made the first gradients so long that the loss
        exploded in the first steps.

    Causes:
        - prices, counts or years as targets in their own units
        - a scaler that was fitted to the targets and not applied

    Next:
        1. Standardise the targets with the statistics of the training set, and turn the predictions back.
        2. Or set the last bias to the mean of the targets before training.
    """

    looks_min: int = threshold(6, "looks that find it")
    last_look_steps: int = threshold(32, "updates by which the predictions should have moved")
    moved_max_share: float = threshold(1e-4, "share of the way that the predictions may have gone")
    spread_min: float = threshold(
        100.0, "standard deviation of targets in raw units: gradients are as many times longer. Chosen"
    )
    explodes_steps: int = threshold(16, "first steps in which the loss explodes")
    explodes_ratio: float = threshold(1e3, "times the first loss that it reaches then, if it stays finite")
    rate_rise_ratio: float = threshold(1.5, "times that the rate may have risen from the first look to the last")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        exploded = self._exploded(window)
        if exploded:
            return exploded
        predicted = {row.place: row for row in script_rows(window, "their-predictions")}
        found = []
        for row in script_rows(window, "far-targets"):
            beside = predicted.get(row.place)
            rate = window.series("learning_rate").between(int(row.steps[0]), int(row.steps[-1])).values
            rises = not len(rate) or bool(rate[-1] > self.rate_rise_ratio * rate[0])
            if beside is None or len(row.steps) < self.looks_min or row.steps[-1] < self.last_look_steps or rises:
                continue
            far = float(row.values[0] - beside.values[0])
            moved = float(beside.last - beside.values[0])
            if 0.0 < abs(moved) < self.moved_max_share * abs(far):
                found.append(
                    self.warning(
                        window,
                        row,
                        f"the targets of the loss of {row.place} have a mean of {row.last:.4g}, and the predictions "
                        f"came from {beside.values[0]:.4g} to {beside.last:.4g} in {row.steps[-1]} updates: the rate "
                        "does not reach them",
                        mean=row.last,
                        predicted=beside.last,
                    )
                )
        return tuple(found[:1])

    def _exploded(self, window: Window) -> tuple[Symptom, ...]:
        """Targets in raw units, where the loss exploded in the first steps."""
        losses = window.signals.get("loss", np.zeros(0))[: self.explodes_steps]
        if len(losses) < 2 or window.steps[0] != 1 or not np.isfinite(losses[0]) or losses[0] < self.spread_min**2:
            return ()
        high = np.flatnonzero(~(losses < self.explodes_ratio * losses[0]))
        spread = {row.place: math.sqrt(row.values[0]) for row in script_rows(window, "target-variance")}
        for row in (*script_rows(window, "target-variance"), *script_rows(window, "far-targets")):
            wide = spread.get(row.place, 0.0) >= self.spread_min
            mean = row.values[0] if not wide else spread[row.place]
            if len(high) and (wide or abs(mean) >= self.spread_min):
                reached = losses[high[0]]
                said = (
                    f"the targets of the loss of {row.place} {'vary by' if wide else 'have a mean of'} {mean:.4g}; "
                    f"that loss begins at {losses[0]:.3g}, and is {reached:.3g} at step {int(window.steps[high[0]])}"
                )
                return (self.warning(window, row, said, scale=float(mean)),)
        return ()
