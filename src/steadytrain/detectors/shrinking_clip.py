"""A clip limit that only falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from steadytrain.core.model import FloatArray, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.medians import median
from steadytrain.statistics.script_rows import script_rows

NEWEST = 3


@final
@dataclass(frozen=True)
class ShrinkingClip(ScriptRule):
    """The limit of a clip only falls, though gradients are as long as they were.

    Means:
        An adaptive limit is meant to follow the gradients. This one only falls: it is a share of what it let through
        before, so each step lowers it for the next one. The loss stands still sooner or later, and nothing else shows
        it. Adam hardly helps, since its second moment remembers the longer gradients from before.

    Causes:
        - a running average, quantile or minimum of gradient norms that is fed with the norms after clipping
        - a limit that is lowered step by step, for gradients that do not get shorter

    Next:
        1. Print the norm before the clip and the limit, side by side.
        2. Feed the average with the norm before clipping: what `clip_grad_norm_` returns.
    """

    looks_min: int = threshold(6, "looks at a clip, one in 16 steps")
    left_share: float = threshold(0.2, "of the limit where it begins to fall: what the newest ones are at most")
    falls_share: float = threshold(0.9, "share of the looks since then with none above the one before")
    norm_ratio: float = threshold(3.0, "how many times longer or shorter the gradients before the clip may have become")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        left, norms = script_rows(window, "left-by-clip"), script_rows(window, "norm-before-clip")
        if not left or not norms or not len(left[0].values) == len(norms[0].values) >= self.looks_min:
            return ()
        row, whole = left[0], norms[0].values
        limits = row.values * whole
        top, now = int(np.argmax(limits)), median(whole[-NEWEST:])
        possible = range(top, len(limits) - self.looks_min + 1)
        starts = [at for at in possible if self._falls(limits[at:], whole[at:])]
        if not starts:
            return ()
        since, newest = limits[starts[0] :], median(row.values[-NEWEST:])
        return (
            self.warning(
                window,
                row,
                f"the limit at which gradients are clipped only falls: from {since[0]:.2g} at step "
                f"{int(row.steps[starts[0]])} to {since[-1]:.2g} at step {int(row.steps[-1])}, where it leaves "
                f"{newest:.2g} of them, though they are as long as before ({now:.2g}); a limit does that if it is fed "
                "with norms after clipping",
                left=newest,
                limit=float(since[-1]),
            ),
        )

    def _falls(self, limits: FloatArray, norms: FloatArray) -> bool:
        """Whether these limits only fall, for gradients that stay as long."""
        falls = float((limits[1:] <= limits[:-1]).mean())
        before, now = median(norms[:NEWEST]), median(norms[-NEWEST:])
        as_long = before <= self.norm_ratio * now and now <= self.norm_ratio * before
        return (
            as_long
            and limits[0] > 0
            and falls >= self.falls_share
            and median(limits[-NEWEST:]) <= self.left_share * limits[0]
        )
