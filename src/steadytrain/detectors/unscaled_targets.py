"""Targets so far from zero that the learning rate does not reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UnscaledTargets(ScriptRule):
    """The mean of the targets is far away, and the predictions do not come nearer.

    Means:
        The targets of a squared error lie more than ten of their standard deviations from the predictions, and in the
        first 32 updates the predictions went less than a ten-thousandth of the way. An optimizer like Adam moves each
        weight by about its rate, however large the loss: the way takes thousands of updates in which nothing else is
        learned. A rate that rises (a warm-up) is waited for, and SGD, whose steps grow with the distance, gets there
        soon.

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
    rate_rise_ratio: float = threshold(1.5, "times that the rate may have risen from the first look to the last")

    def check(self, window: Window) -> tuple[Symptom, ...]:
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
