"""A clip limit far below the usual gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

EVERY_STEPS = 16
"""A clip by hand is measured once in so many steps."""


@final
@dataclass(frozen=True)
class ChokingClip(ScriptRule):
    """Clipping leaves less than a hundredth of nearly every gradient, and SGD hardly moves.

    Means:
        A clip is for rare long gradients. Here it shortens nearly all of them more than a hundredfold, from the first
        steps on, and an update of SGD is as short as its gradient: the weights hardly change. Optimizers that divide by
        their own moments (Adam) do not care about the length and are left alone, and so is a rate that makes up for it.

    Causes:
        - a limit of 0.01 or 0.001 where 1 is meant
        - a limit that was found for a mean loss, and a loss that is now a sum

    Next:
        1. Log the norm that `clip_grad_norm_` returns, and set the limit at what nine in ten steps have.
        2. If each step is meant to have one length, raise the rate by as much as the clip takes away.
    """

    waits_for: ClassVar[str] = "steps_min"

    steps_min: int = threshold(64, "steps with a clip, the newest of which are judged")
    coefficient_max: float = threshold(0.01, "what a clip may leave of a gradient, as a factor")
    clipped_share: float = threshold(0.9, "share of the steps that are clipped so far")
    moved_max_share: float = threshold(1e-4, "length of an update with its momentum, as a share of the weights' norm")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        rows = script_rows(window, "descent")
        clips, least = window.series("clip_coefficient"), self.steps_min
        by_hand = script_rows(window, "left-by-clip")
        if len(clips) < least and by_hand:  # looked at in every 16th step
            clips, least = Series(by_hand[0].steps, by_hand[0].values), self.steps_min // EVERY_STEPS
        if not rows or len(clips) < least or script_rows(window, "clipped-scaled"):
            return ()
        newest = clips.values[-least:]
        share = float((newest < self.coefficient_max).mean())
        first = int(clips.steps[-least])
        rate, applied, weights = (
            window.series(name).between(first, int(clips.steps[-1])).values
            for name in ("learning_rate", "gradient_norm_applied", "parameter_norm")
        )
        if share < self.clipped_share or not all(map(len, (rate, applied, weights))) or not np.median(weights) > 0.0:
            return ()
        moved = float(rows[0].last * rate.max() * np.median(applied) / np.median(weights))
        if not moved < self.moved_max_share:
            return ()
        usual = float(np.median(newest))
        return (
            self.warning(
                window,
                rows[0],
                f"clipping leaves {usual:.2g} of the usual gradient, and an update of SGD changes the weights by "
                f"{moved:.1g} of their norm: the limit is far too low",
                coefficient=usual,
                moved=moved,
            ),
        )
