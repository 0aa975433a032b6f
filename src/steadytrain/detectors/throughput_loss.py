"""A log whose rows take several times as long from some row on, to its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.metric_names import HELD_OUT, words
from steadytrain.core.model import FloatArray, IntArray, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.log_levels import stage_changed, suffix
from steadytrain.statistics.medians import median

ROWS_MIN = 12
START_ROWS_MIN = 5
_SPEEDS = frozenset({"fps", "ips", "throughput", "ups", "wps"})
_PER_SECOND = (frozenset({"sec"}), frozenset({"second"}), frozenset({"s"}))
_COUNTED = frozenset({"examples", "frames", "images", "imgs", "it", "iter", "samples", "steps", "tok", "tokens"})


@final
@dataclass(frozen=True)
class ThroughputLoss(Detector):
    """The rows of a log take several times as long as at first, to its end.

    Means:
        The time of a step is two and a half times that of the first quarter of the log or more, or the logged speed
        (tokens, samples or frames per second) is that much lower, in every one of the last rows. Nothing is wrong with
        the model; time is lost. It looks only at whole logs (`steadytrain analyze`) and needs twelve rows; single long
        rows (a checkpoint, an evaluation) do not count.

    Causes:
        - the data loader: a slow disk or network, workers that died, a cache that filled up
        - a device that slows down: heat, a power cap, another process on it
        - memory that grows: lists of losses with their graphs, an allocator that retries
        - no fault: longer sequences or larger batches from there on

    Next:
        1. Compare what the machine did at `first_step`: other jobs, clocks, memory, disk.
        2. Measure one step without data loading.
        3. Run under `steadytrain run`: it separates waiting for data from computing.
    """

    needs: ClassVar[tuple[str, ...]] = ("step_s", "metrics")
    of_logs: ClassVar[bool] = True
    same_event_as: ClassVar[str] = "throughput-stall"

    slow_ratio: float = threshold(
        2.5, "median time of the slow rows over that of the first quarter; see throughput-stall"
    )
    each_ratio: float = threshold(1.8, "the same of each slow row: what comes back between is a pause")
    tail_share: float = threshold(0.15, "share of the rows that are slow, at the end of the log, and at least five")
    step_min_s: float = threshold(0.02, "shorter steps are not judged: other processes dominate their time")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        for name, steps, times in self._paces(window):
            rows = len(times)
            usual = median(times[: max(START_ROWS_MIN, rows // 4)])
            slow = suffix(times > self.each_ratio * usual)
            if slow < max(START_ROWS_MIN, int(self.tail_share * rows)) or rows - slow < START_ROWS_MIN:
                continue
            ratio = median(times[rows - slow :]) / usual
            first, before = int(steps[rows - slow]), int(steps[rows - slow - 1])
            if ratio < self.slow_ratio or stage_changed(window, before, first):
                continue
            return (
                Symptom(
                    name="throughput-loss",
                    severity="warning",
                    first_step=first,
                    last_step=int(steps[-1]),
                    message=f"{name} says that a step takes {ratio:.2g} times as long from step {first} to the end as "
                    f"at first",
                    signals=(name,),
                    numbers={"ratio": ratio, "rows": float(slow)},
                ),
            )
        return ()

    def _paces(self, window: Window) -> Iterator[tuple[str, IntArray, FloatArray]]:
        """Each column of times or speeds, as times."""
        times = window.applied("step_s")
        if len(times) >= ROWS_MIN and median(times.values) >= self.step_min_s:
            yield "step_s", times.steps, times.values
        for name, series in window.metrics.items():
            good = np.isfinite(series.values) & (series.values > 0)
            if _is_speed(name) and int(good.sum()) >= ROWS_MIN:
                yield name, series.steps[good], 1.0 / series.values[good]


def _is_speed(name: str) -> bool:
    found = set(words(name))
    per_second = any(found >= unit for unit in _PER_SECOND) and bool(found & _COUNTED)
    return not found & HELD_OUT and (per_second or bool(found & _SPEEDS))
