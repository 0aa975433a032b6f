"""The last steps of a run with all their signals, in a ring of bounded size, and the pace that they show."""

from __future__ import annotations

import numpy as np

from steadytrain.core.model import FloatArray, IntArray, Window
from steadytrain.live.stretches import Stretched, of_values

RECENT_MAX = 512
PACE_S = 60.0
"""The pace is that of the steps of the last minute, so that it follows a change within a minute."""

PACE_STEPS_MIN = 8
"""Slow runs make fewer in a minute: then it is that of the last few."""


class RecentSteps:
    """Takes windows as they come, and keeps the last ``RECENT_MAX`` steps."""

    def __init__(self) -> None:
        self._steps: IntArray = np.zeros(0, np.int64)
        self._time: FloatArray = np.zeros(0, np.float64)
        self._signals: dict[str, FloatArray] = {}
        self._present: dict[str, FloatArray] = {}

    def add(self, window: Window) -> None:
        cut = slice(max(0, len(window) - RECENT_MAX), None)
        before, fresh = len(self._steps), len(window.steps[cut])
        for name, values in window.signals.items():
            old = self._signals.get(name, np.zeros(before))
            known = self._present.get(name, np.zeros(before))
            self._signals[name] = np.concatenate([old, values[cut]])[-RECENT_MAX:]
            self._present[name] = np.concatenate([known, window.present[name][cut].astype(np.float64)])[-RECENT_MAX:]
        for name in self._signals.keys() - window.signals.keys():
            self._signals[name] = np.concatenate([self._signals[name], np.zeros(fresh)])[-RECENT_MAX:]
            self._present[name] = np.concatenate([self._present[name], np.zeros(fresh)])[-RECENT_MAX:]
        self._steps = np.concatenate([self._steps, window.steps[cut]])[-RECENT_MAX:]
        self._time = np.concatenate([self._time, window.time[cut]])[-RECENT_MAX:]

    @property
    def step(self) -> int | None:
        """The last step, None before the first."""
        return int(self._steps[-1]) if len(self._steps) else None

    @property
    def time(self) -> float:
        """When the last step was recorded."""
        return float(self._time[-1])

    def newest(self, signal: str) -> float | None:
        """The last value of a signal among the last steps."""
        values = self._of(signal)[1]
        return float(values[-1]) if len(values) else None

    def stretched(self, signal: str) -> Stretched | None:
        """Each of the last steps as a stretch of its own."""
        return of_values(*self._of(signal))

    def steps_per_s(self) -> float | None:
        """Steps a second of the last minute."""
        if len(self._steps) < 2:
            return None
        first = int(np.searchsorted(self._time, self._time[-1] - PACE_S))
        first = max(0, min(first, len(self._steps) - PACE_STEPS_MIN))
        seconds = float(self._time[-1] - self._time[first])
        steps = int(self._steps[-1] - self._steps[first])
        return steps / seconds if seconds > 0 and steps > 0 else None

    def usual_step_s(self) -> float | None:
        """The median time between two of the last steps."""
        return float(np.median(np.diff(self._time))) if len(self._time) > 1 else None

    def data_wait_share(self) -> float | None:
        """The share of the last steps' time that was spent waiting for data."""
        waited, took = self._of("data_wait_s")[1], self._of("step_s")[1]
        total = float(np.nansum(took))
        return min(1.0, float(np.nansum(waited)) / total) if len(waited) and total > 0 else None

    def _of(self, signal: str) -> tuple[IntArray, FloatArray]:
        if signal not in self._signals:
            return np.zeros(0, np.int64), np.zeros(0, np.float64)
        here = self._present[signal] > 0
        return self._steps[here], self._signals[signal][here]
