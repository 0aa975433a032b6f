"""A target, or an advantage, carries a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class LiveTarget(ScriptRule):
    """A target, or an advantage, carries a gradient.

    Means:
        The script computes a bootstrapped value, an advantage or the other view's projection by the network that it
        trains, and the loss gets it without `detach()` and outside of `no_grad()`. The gradient then also moves the
        target towards the prediction, or lowers the loss of the policy by the critic.

    Causes:
        - `target = reward + gamma * q(next_state).max(1).values` without `no_grad()`
        - `advantage = returns - values` in the loss of the policy without `detach()`
        - a projection that a predictor is compared with, without `detach()` (SimSiam)
        - no fault: a policy that is differentiated through its value on purpose

    Next:
        1. Compute the target under `torch.no_grad()`, or call `detach()` on it.
        2. Multiply the log-probability by `advantage.detach()`.
    """

    looks_min: int = threshold(3, "looks that find it in the graph of the loss")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        read = script_rows(window, "live-target")
        if read:
            told = f"{read[0].place} makes a target or an advantage that carries the gradient of the trained network"
            return (self.warning(window, read[0], f"{told}: detach() is missing", lines=float(len(read))),)
        seen = [row for row in script_rows(window, "live-weight") if len(row.steps) >= self.looks_min]
        if not seen or not script_rows(window, "policy-code"):
            return ()
        told = f"the loss of {seen[0].place} weighs log-probabilities by an advantage that carries a gradient"
        return (self.warning(window, seen[0], f"{told}: detach() is missing", products=seen[0].last),)
