"""The rules of others, stated anew from what they publish: where each would have spoken up on a signal.

Each takes one signal, step by step, and tells the steps at which it fires. A rule that would have ended or changed the
run is let go on as if nothing had been done. Constants are the defaults of each tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from trials.noise import Values

Fires = NDArray[np.bool_]

ROWS_AT_A_TIME = 4096
MAD_TO_SIGMA = 1.4826


def olmo_core(values: Values) -> Fires:
    """OLMo-core, SkipStepOptimizer: further than 6 standard deviations from the mean of the last 128, on either side.

    From 64 values on (half of the window, at least 20), the newest among them. What it skips stays in its window.
    """
    window, sigmas, least = 128, 6.0, 64
    fires = np.zeros(len(values), np.bool_)
    for row in range(least - 1, min(window, len(values))):
        fires[row] = _beyond(values[row], values[:row], sigmas)
    if len(values) > window:
        before = sliding_window_view(values, window)[:-1]
        away = np.abs(values[window:] - before.mean(axis=1))
        fires[window:] = away > sigmas * before.std(axis=1, ddof=1)
    return fires


def _beyond(value: float, before: Values, sigmas: float) -> bool:
    return bool(abs(value - before.mean()) > sigmas * before.std(ddof=1))


def llm_foundry(values: Values) -> Fires:
    """llm-foundry, KillLossSpike: twice the mean of the last 100 for more than 4 steps; or half of these above 10.

    The second from step 200 on. Outliers enter the window.
    """
    window, patience, ratio, cap = 100, 4, 2.0, 10.0
    fires = np.zeros(len(values), np.bool_)
    if len(values) <= window:
        return fires
    before = sliding_window_view(values, window)[:-1]
    outlier = values[window:] >= ratio * before.mean(axis=1)
    in_a_row = _run_lengths(outlier)
    high = (before > cap).sum(axis=1) >= window / 2
    late = np.arange(window, len(values)) + 1 >= 2 * window
    fires[window:] = (in_a_row > patience) | (high & late)
    return fires


def _run_lengths(hits: Fires) -> NDArray[np.int64]:
    """How many in a row, up to and with each."""
    rows = np.arange(1, len(hits) + 1)
    last_miss = np.maximum.accumulate(np.where(hits, 0, rows))
    return np.where(hits, rows - last_miss, 0)


def lightning(values: Values) -> Fires:
    """Lightning, SpikeDetection: further from the mean of the last 10 than twice that mean, and above the last one.

    What fires enters neither the mean nor the last one.
    """
    window, ratio, warm_up = 10, 2.0, 1
    fires = np.zeros(len(values), np.bool_)
    kept: list[float] = []
    for row, value in enumerate(values.tolist()):
        if row >= warm_up and kept:
            recent = kept[-window:]
            mean = sum(recent) / len(recent)
            if value > kept[-1] and abs(value - mean) >= abs(ratio * mean):
                fires[row] = True
                continue
        kept.append(value)
    return fires


def zclip(values: Values) -> Fires:
    """ZClip: 2.5 standard deviations above the mean, both running averages that keep 0.97, begun from the first 25.

    Made for clipping, and for gradient norms. What it clips enters as the value that it is clipped to.
    """
    keep, z_max, warm_up = 0.97, 2.5, 25
    fires = np.zeros(len(values), np.bool_)
    mean, variance = float(values[:warm_up].mean()), float(values[:warm_up].var())
    for row, value in enumerate(values[warm_up:].tolist(), start=warm_up):
        deviation = variance**0.5
        z = (value - mean) / (deviation + 1e-6)
        if z > z_max:
            fires[row] = True
            value = mean + z_max * deviation * z_max / z
        mean = keep * mean + (1.0 - keep) * value
        variance = keep * variance + (1.0 - keep) * (value - mean) ** 2
    return fires


def megatron(values: Values) -> Fires:
    """Megatron-LM, rerun state machine: ten times the highest absolute value of the first 100."""
    samples, factor = 100, 10.0
    fires = np.abs(values) >= factor * np.abs(values[:samples]).max()
    fires[:samples] = False
    return fires


def trainscope(values: Values) -> Fires:
    """trainscope 1.8, its default: CUSUM on both sides, slack 1, alarm 6, about the median of the last 200.

    In robust standard deviations, from 30 values on; both sums begin anew when it fires. Everything enters the window.
    """
    window, least, slack, alarm = 200, 30, 1.0, 6.0
    fires = np.zeros(len(values), np.bool_)
    up, down = 0.0, 0.0
    for row, z in enumerate(_robust_z(values, window, least).tolist(), start=least):
        up, down = max(0.0, up + z - slack), min(0.0, down + z + slack)
        if up >= alarm or -down >= alarm:
            fires[row], up, down = True, 0.0, 0.0
    return fires


def _robust_z(values: Values, window: int, least: int) -> Values:
    """The distance of each value but the first ``least`` from the median of the ``window`` before it."""
    padded = np.concatenate([np.full(window, np.nan), values])
    before = sliding_window_view(padded, window)[:-1]
    z = np.zeros(max(len(values) - least, 0))
    for start in range(least, len(values), ROWS_AT_A_TIME):
        some = before[start : start + ROWS_AT_A_TIME]
        # Whole windows first: a median that looks for NaN takes several times as long.
        middle = np.nanmedian if start < window else np.median
        level = middle(some, axis=1)
        size = np.maximum(MAD_TO_SIGMA * middle(np.abs(some - level[:, None]), axis=1), 1e-12)
        stop = start + len(some)
        z[start - least : stop - least] = (values[start:stop] - level) / size
    return z


RULES: Mapping[str, Callable[[Values], Fires]] = {
    "OLMo-core skip step": olmo_core,
    "llm-foundry KillLossSpike": llm_foundry,
    "Lightning SpikeDetection": lightning,
    "ZClip": zclip,
    "Megatron rerun": megatron,
    "trainscope": trainscope,
}


def episodes(fires: Fires, *, apart: int = 16) -> int:
    """How often it fires, where what follows within 16 steps belongs to what came before."""
    rows = np.flatnonzero(fires)
    return int((np.diff(rows) > apart).sum()) + 1 if len(rows) else 0
