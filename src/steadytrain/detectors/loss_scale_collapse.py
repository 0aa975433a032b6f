"""The gradient scaler cannot find a scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import IntArray, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.rolling_baseline import holds_start, stride_of
from steadytrain.statistics.table_episodes import known_first_reading, stretches

GROWTH_INTERVAL_STEPS = 2000
"""Steps between two attempts to double the scale: torch's default, if the run does not report it."""


@final
@dataclass(frozen=True)
class LossScaleCollapse(Detector):
    """The gradient scaler skips step after step, or its scale has fallen to nearly zero.

    Means:
        No scale fits: either large float16 gradients overflow or small ones round to zero. A healthy scaler skips one
        step in about 2,000, when it tries to double its scale, and a few at the start while it searches for one. Here
        it skips several in a row or far too often, or its scale has fallen to 128 or below, where small gradients round
        to zero. "critical" means a scale below 1 or ten skips in a row: the model no longer learns.

    Causes:
        - the run diverges and float16 only shows it first: see divergence and exploding-gradients
        - NaN in the gradient, which no scale can cure: every step is skipped
        - activations or losses that leave float16's range (see precision-headroom)
        - a scale that was not saved with the checkpoint, or a growth interval that is too short

    Next:
        1. Check whether skipped steps hold Inf (range) or NaN (a bug; see nonfinite-gradient and the incident).
        2. Continue from before it in bfloat16 or float32. If the overflows are gone, range was the cause; if not, the
           run diverges.
        3. Keep softmax, norms, logits and the loss in float32.
        4. Lower the learning rate where the scale falls step by step with a rising gradient norm.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss_scale", "scaler_skips")

    scale_min: float = threshold(
        128.0,
        "a scale at or below it has collapsed if it was row_steps halvings higher before: torch "
        "begins at 65,536. A run that chose a small scale keeps it, except for single skips",
    )
    critical_scale_min: float = threshold(1.0, "below 1 the scale makes gradients smaller")
    row_steps: int = threshold(3, "skips in a row: after one halving a healthy scaler is back below the limit")
    critical_row_steps: int = threshold(10, "the scale has been divided by a thousand by then")
    often_steps: int = threshold(5, "skips within one growth interval above which it skips too often; healthy is one")
    search_steps: int = threshold(
        100,
        "skips that begin this soon after the start or a resume are the search for a "
        "scale, as long as it stays above the bound",
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        skipped = _skips(window)
        scale = (
            np.where(window.present["loss_scale"], window.signals["loss_scale"], np.nan)
            if window.has("loss_scale")
            else np.full(len(window), np.nan)
        )
        low = scale <= self.scale_min
        if not skipped.any() and not low.any():
            return ()
        highest = np.fmax.accumulate(scale) if len(scale) else scale
        low &= highest >= self.scale_min * 2**self.row_steps
        in_search = self._search(window)
        counted = skipped & (~in_search | low)
        beyond = low | self._in_a_row(counted) | self._often(window, counted)
        stride = stride_of(window.steps)
        found = []
        for start, stop in stretches(beyond, hole_max=16):
            first_step = known_first_reading(window, window.steps, start, last=stop - 1)
            last_step = int(window.steps[stop - 1])
            rows = [last - first for first, last in stretches(skipped[start:stop])]
            longest, smallest = max(rows, default=0), _smallest(scale[start:stop])
            critical = smallest < self.critical_scale_min or (longest >= self.critical_row_steps and stride == 1)
            what = (
                f"the gradient scaler skipped {sum(rows)} steps from step {first_step} to {last_step}, up to {longest}"
            )
            what += " in a row" if np.isnan(smallest) else f" in a row; the scale fell to {smallest:.4g}"
            if not rows:
                what = f"the loss scale was {smallest:.4g} from step {first_step} to {last_step}"
            found.append(
                Symptom(
                    name="loss-scale-collapse",
                    severity="critical" if critical else "warning",
                    first_step=first_step,
                    last_step=last_step,
                    message=what,
                    signals=("loss_scale",),
                    numbers={"skips": float(sum(rows)), "skips_in_a_row": float(longest), "scale_smallest": smallest},
                )
            )
        return tuple(found)

    def _search(self, window: Window) -> NDArray[np.bool_]:
        """Steps in which a scaler may still be looking for its scale."""
        begins = [*window.resumed.tolist()]
        if holds_start(window.steps, stride=stride_of(window.steps)):
            begins.append(int(window.steps[0]))
        search = np.zeros(len(window), np.bool_)
        for begin in begins:
            search |= (window.steps >= begin) & (window.steps < begin + self.search_steps)
        return search

    def _in_a_row(self, skipped: NDArray[np.bool_]) -> NDArray[np.bool_]:
        kept = np.zeros_like(skipped)
        for start, stop in stretches(skipped):
            if stop - start >= self.row_steps:
                kept[start:stop] = True
        return kept

    def _often(self, window: Window, skipped: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """From the first to the last of more than ``often_steps`` skips within one growth interval."""
        at: IntArray = np.flatnonzero(skipped)
        kept = np.zeros_like(skipped)
        interval = window.facts.get("loss_scale_growth_interval", GROWTH_INTERVAL_STEPS)
        for first, last in zip(at, at[self.often_steps :], strict=False):
            if window.steps[last] - window.steps[first] < interval:
                kept[first : last + 1] = True
        return kept


def _skips(window: Window) -> NDArray[np.bool_]:
    """Steps that were skipped, or logged steps before which some were."""
    if window.skipped.any() or not window.has("scaler_skips"):
        return window.skipped
    count = np.where(window.present["scaler_skips"], window.signals["scaler_skips"], 0.0)
    return np.diff(count, prepend=count[:1]) > 0


def _smallest(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.min()) if len(known) else float("nan")
