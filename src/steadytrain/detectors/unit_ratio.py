"""A policy ratio that is always 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class UnitRatio(ScriptRule):
    """The clipped ratio of a policy gradient is exactly 1 in later passes over a rollout, too.

    Means:
        The ratio compares the policy with the one that acted. Here it is exactly 1 in all rows of batches that the
        policy was already updated on: the old log-probability is computed anew in each update, by the policy itself.
        The clip never acts, and each further pass moves the policy away from its own data without a bound.

    Causes:
        - `old = log_prob.detach()` inside the loop over epochs, where that of the rollout is meant
        - a copy of the policy for the old log-probability that is renewed after each update

    Next:
        1. Store the log-probability when the action is drawn, and use that one in all epochs.
        2. Print the mean and the largest ratio of each update: they leave 1 from the second one on.
    """

    looks_min: int = threshold(2, "looks at rows that came before")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"the policy ratio in the loss of {row.place} is exactly 1 on rows that came before: the old "
                "log-probability is that of the policy itself, so the clip never acts",
                looks=float(len(row.steps)),
            )
            for row in script_rows(window, "unit-ratio")
            if len(row.steps) >= self.looks_min and bool((row.values == 1.0).all())
        )[:1]
