"""Steps take much longer than they did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steadytrain.core.model import FloatArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.benign_changes import batches_changed
from steadytrain.statistics.medians import median
from steadytrain.statistics.rolling_baseline import known_first_step, stride_of
from steadytrain.statistics.table_episodes import stretches

OF_HOST = ("cpu_busy_share", "process_cpu_cores")
BLOCK_STEPS = 16
REFERENCE_BLOCKS = 16
GAP_BLOCKS = 4


@final
@dataclass(frozen=True)
class ThroughputStall(Detector):
    """Steps take much longer than before, and stay slow.

    Means:
        The median time of a step has doubled for 64 steps or more. Nothing is wrong with the model; time is lost.
        Single long steps (a checkpoint, an evaluation, a garbage collection) do not count. Below two and a half times
        it is a note, unless the steps wait for data: another process on the same cores or GPU can cause that much. So
        is what has cost less than ten seconds in all, and steps for which other processes left no processor time.
        `step_s` excludes the time that steadytrain itself spends.

    Causes:
        - the data loader: a slow disk or network, workers that died, a cache that filled up (see `data_wait_s`)
        - a device that slows down: heat, a power cap, another process on it (see the table `machine`)
        - memory nearly full: the allocator frees and reallocates at every step, or the host swaps
        - one slow rank that all others wait for
        - recompilation at every new shape

    Next:
        1. Compare `data_wait_s` with `step_s`. If it is most of it, look at the loader, not at the model.
        2. Look at clocks, temperature, busy share and allocation retries of the table `machine` at `first_step`.
        3. With several ranks: which one has the least time waiting for the others?
    """

    needs: ClassVar[tuple[str, ...]] = ("step_s", "machine.cpu_busy_share")
    waits_for: ClassVar[str] = "slow_steps"
    keeps_incident: ClassVar[bool] = False

    slow_ratio: float = threshold(
        2.0,
        "median of 16 steps divided by that of the 256 steps that ended 64 steps earlier: twice "
        "the time is twice the cost. Healthy runs vary by some tenths",
    )
    warning_ratio: float = threshold(
        2.5, "a warning from here: two processes that share a machine evenly take twice as long each"
    )
    wait_share: float = threshold(
        0.5, "share of the lost time spent waiting for data from which a doubling is a warning, too"
    )
    slow_steps: int = threshold(64, "logged steps in a row: longer than a checkpoint or an evaluation takes")
    lost_s: float = threshold(10.0, "seconds lost in all before it is a warning: less is not worth a look")
    busy_share: float = threshold(0.95, "of the processors' time in use: then others may have taken them")
    own_cores_max: float = threshold(0.5, "of a core for this process beside that. A training thread alone uses one")
    step_min_s: float = threshold(0.02, "shorter steps are not judged: other processes dominate their time")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        if not window.has("step_s"):
            return ()
        times = window.applied("step_s")
        stride = stride_of(times.steps)
        edges = np.flatnonzero(np.diff(times.steps // (BLOCK_STEPS * stride))) + 1
        count = (len(times) - int(edges[0])) // BLOCK_STEPS if len(edges) else 0
        if count <= REFERENCE_BLOCKS + GAP_BLOCKS:
            return ()
        heads = int(edges[0]) + BLOCK_STEPS * np.arange(count)
        blocks = times.values[heads[0] : heads[0] + count * BLOCK_STEPS].reshape(count, BLOCK_STEPS)
        pace = _medians(blocks)
        usual = np.full(count, np.inf)
        before = sliding_window_view(pace, REFERENCE_BLOCKS)[: -GAP_BLOCKS - 1]
        usual[REFERENCE_BLOCKS + GAP_BLOCKS :] = _medians(before)
        slow = (pace > self.slow_ratio * usual) & (pace > self.step_min_s)
        found = []
        for start, stop in stretches(slow, hole_max=1):
            if (stop - start) * BLOCK_STEPS < self.slow_steps:
                continue
            first, last = int(heads[start]), int(heads[stop - 1]) + BLOCK_STEPS - 1
            first_step = known_first_step(
                times.steps, first, first_seen=int(times.steps[0]), stride=stride, last_row=last
            )
            last_step = int(times.steps[last])
            now, then = median(pace[start:stop]), float(usual[start])
            wait = window.applied("data_wait_s").between(first_step, last_step).values
            usual_at = heads[[start - REFERENCE_BLOCKS - GAP_BLOCKS, start - GAP_BLOCKS]]
            span = (int(times.steps[usual_at[0]]), int(times.steps[usual_at[1]]) - 1)
            waits = window.applied("data_wait_s").between(*span).values
            waited = median(wait) - median(waits) if len(wait) and len(waits) else 0.0
            of_data = waited >= self.wait_share * (now - then)
            shared = now < self.warning_ratio * then and not of_data
            lost = (now - then) * (last_step - first_step + 1)
            planned = batches_changed(window, span, (first_step, last_step))
            if not planned and not of_data:
                planned = self._taken(window, first_step, last_step)
            found.append(
                Symptom(
                    name="throughput-stall",
                    severity="note" if planned or shared or lost < self.lost_s else "warning",
                    first_step=first_step,
                    last_step=last_step,
                    message=f"a step took {now:.3g} s from step {first_step} to {last_step}, {now / then:.2g} times "
                    f"the {then:.3g} s before"
                    + (f"; {median(wait):.3g} s of it is waiting for data" if len(wait) else "")
                    + (f"; {planned}" if planned else ""),
                    signals=("step_s", "data_wait_s") if len(wait) else ("step_s",),
                    numbers={
                        "step_s": now,
                        "usual_s": then,
                        "lost_s": lost,
                        "data_wait_s": median(wait) if len(wait) else 0.0,
                    },
                )
            )
        return tuple(found)

    def _taken(self, window: Window, first_step: int, last_step: int) -> str:
        """That other processes had the processors meanwhile; "" if they had not, or nobody knows."""
        table = window.tables.get("machine")
        if table is None or not set(OF_HOST) <= set(table.columns) or "host" not in table.rows:
            return ""
        during = [_during(table.series("host", name), first_step, last_step) for name in OF_HOST]
        if not all(map(len, during)) or median(during[0]) < self.busy_share or median(during[1]) > self.own_cores_max:
            return ""
        got = (
            f"this process did not get the processor: others kept all of them busy, and it got {median(during[1]):.2g}"
        )
        return f"{got} of a core"


def _during(readings: Series, first_step: int, last_step: int) -> FloatArray:
    """The readings of a share of the time in these steps: each covers the steps since the one before it."""
    begins = np.concatenate([[0], readings.steps[:-1]])
    values: FloatArray = readings.values[(readings.steps >= first_step) & (begins < last_step)]
    return values


def _medians(rows: FloatArray) -> FloatArray:
    """Medians of rows of even length; `np.median` takes several times as long."""
    ordered = np.sort(rows, axis=1)
    middle = rows.shape[1] // 2
    medians: FloatArray = 0.5 * (ordered[:, middle - 1] + ordered[:, middle])
    return medians
