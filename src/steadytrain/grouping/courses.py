"""The course of a symptom: its 64 logged steps from the onset on, compared with those before.

The level before comes from a reference (with a decline removed from its noise), the level after is the median of steps
48 to 64. Only finite values of applied updates count; the gradient norm is judged by its logarithm. Only a rise has a
course: a loss or a gradient norm that stays flat or falls has none. Not here: why a course is harmless (``harmless``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadytrain.core.metric_names import is_loss, is_score
from steadytrain.core.model import FloatArray, IntArray, Series, Symptom, Window
from steadytrain.grouping.catalog import is_nonfinite
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import Reference, reference_of
from steadytrain.statistics.rolling_baseline import stride_of

HORIZON_STEPS = 64
LATE_STEPS = 48
MIDDLE_STEPS = 32
"""The level after an event is the median from ``LATE_STEPS`` to the horizon. Its slope compares that with the steps
from here on.
"""

BEFORE_STEPS = 128
BEFORE_STEPS_MIN = 8
ROWS_PER_STEP = 4
"""Rows of a window that are searched per wanted step, before the whole window is searched."""

RECOVERED_SCALES = 1.0
SHIFTED_SCALES = 2.0
DIVERGED_SCALES = 4.0
FLAT_SCALES = 1.0
"""Without a change, two medians of 16 steps each differ by 0.44 scales (one standard error)."""

HALF_GONE = 0.5
RISE_SCALES = 4.0
RISE_SCALES_LASTING = 0.5
"""A rise: one value this far above the level, or for lasting symptoms the median of all values (the slack of the
CUSUM).
"""

DOUBLED = 2.0
"""A lasting symptom went on rising if its end is this many times as high as just after the horizon."""

SHIFTED_VARIANCE = 4.0
"""Other data are about as noisy. The variance of 32 Gaussian values exceeds 1.6 once in a hundred times."""

SWING_VARIANCE, SWING_CORRELATION = 2.0, -0.3
GUESSING_RATIO = 1.1

RESUME_STEPS = 50
"""Optimizer moments with beta2 = 0.95 have forgotten a resume after 2 / (1 - beta2) = 40 steps."""

RESTART_RATIO = 1.5
NEAR_STEPS = 2
"""A restart or the end of an epoch must lie within this many logged steps of the onset."""

EPOCH_STEPS_MIN = 64
"""In shorter epochs every onset is near an end."""

RECOVERED, RECOVERING, DIVERGING, SHIFTED, OPEN = "recovered", "recovering", "diverging", "level-shift", "open"
RETURNED = "returned"
DATA, WEIGHTS, SWINGING = "shift-of-data", "damaged-weights", "oscillating"
RESTART, RESUME, EPOCH = "learning-rate-restart", "resume", "epoch-boundary"

TOLD = {
    RECOVERED: "{it} is back where it was",
    RETURNED: "{it} stood higher for a while and is back where it was",
    RECOVERING: "more than half of it is gone after 64 steps",
    DIVERGING: "{it} does not recover",
    SHIFTED: "{it} stays at a new level",
    DATA: "{it} stays at a new level and the gradients are as before, as after a change of the data",
    WEIGHTS: "{it} stays at a new level and evaluations moved with it, as after damage to the weights",
    SWINGING: "{it} swings around the level that it had",
    OPEN: "too few steps follow to see whether it recovers",
    RESTART: "it begins where the learning rate goes up again",
    RESUME: "it begins right where the run goes on, as after a resume",
    EPOCH: "it begins where an epoch ends",
}
"""Every course in words. ``{it}`` is the signal."""

_JUDGED = {"loss": "the loss", "gradient_norm": "the gradient norm"}


@dataclass(frozen=True)
class Around:
    """One signal around the onset of a symptom: the values before it and the first 64 from it on."""

    before: FloatArray
    after: FloatArray
    steps_after: IntArray

    @property
    def is_enough(self) -> bool:
        return len(self.after) >= HORIZON_STEPS

    @property
    def late(self) -> float:
        return median(self.after[LATE_STEPS:])

    @property
    def middle(self) -> float:
        return median(self.after[MIDDLE_STEPS:LATE_STEPS])


def course_of(window: Window, symptom: Symptom) -> str | None:
    """The course of a symptom whose loss or gradient norm rose. None for all others, and without earlier values."""
    signal = _signal(symptom)
    if signal is None or is_nonfinite(symptom):
        return None
    around = _around(window, signal, symptom.first_step)
    if len(around.before) < BEFORE_STEPS_MIN or not len(around.after):
        return None
    reference = reference_of(around.before)
    if not _rises(around, reference, symptom):
        return None
    if not around.is_enough:
        return OPEN
    outcome = _at_its_end(window, symptom, around, reference, _outcome(window, symptom, around, reference))
    if outcome in (RECOVERED, RECOVERING):
        if _rate_went_up(window, symptom.first_step):
            return RESTART
        if _was_resumed(window, symptom.first_step):
            return RESUME
    if outcome not in (DIVERGING, SWINGING, WEIGHTS) and _epoch_ends(window, symptom.first_step):
        return EPOCH
    stays = outcome in (DIVERGING, SHIFTED, WEIGHTS) or (
        outcome == DATA and evaluated_since(window, symptom) is not False
    )
    return RETURNED if stays and _is_back(window, symptom, around, reference) else outcome


def told(symptom: Symptom) -> str:
    """The course of ``symptom`` in words, "" if it has none."""
    if symptom.course is None:
        return ""
    return TOLD[symptom.course].format(it=_JUDGED[_signal(symptom) or "loss"])


def evaluated_since(window: Window, symptom: Symptom) -> bool | None:
    """Whether evaluations are worse after the onset than before, None unless there are some on both sides."""
    last_step = _last_step(window, symptom)
    known = None
    for name, series in window.metrics.items():
        if not (is_loss(name) or is_score(name)):
            continue
        before = series.between(int(series.steps[0]), symptom.first_step - 1).values if len(series) else series.values
        after = series.between(symptom.first_step, last_step).values
        if len(before) < 2 or not len(after) or not np.isfinite(before).all():
            continue
        known = bool(known)
        usual = max(median(np.abs(np.diff(before))), 1e-3 * abs(float(before[-1])))
        worse = (median(after) - float(before[-1])) * (1.0 if is_loss(name) else -1.0)
        if not worse <= SHIFTED_SCALES * usual:  # a NaN is worse
            return True
    return known


def _signal(symptom: Symptom) -> str | None:
    return next((name for name in symptom.signals if name in _JUDGED), None)


def _around(window: Window, signal: str, first_step: int) -> Around:
    """Searches the rows near the onset first: a log may have a million rows and many symptoms."""
    position = int(np.searchsorted(window.steps, first_step))
    start, stop = position - ROWS_PER_STEP * BEFORE_STEPS, position + ROWS_PER_STEP * HORIZON_STEPS
    found = _cut(_rows(window, signal, max(0, start), stop), signal, first_step)
    lacks = (start > 0 and len(found.before) < BEFORE_STEPS) or (stop < len(window) and not found.is_enough)
    return _cut(window.applied(signal), signal, first_step) if lacks else found


def _rows(window: Window, signal: str, start: int, stop: int) -> Series:
    if signal not in window.signals:
        return Series(np.zeros(0, np.int64), np.zeros(0, np.float64))
    values, steps = window.signals[signal][start:stop], window.steps[start:stop]
    applied = ~window.skipped[start:stop] & ~window.refused[start:stop]
    here = window.present[signal][start:stop] & applied & np.isfinite(values)
    return Series(steps[here], values[here])


def _cut(series: Series, signal: str, first_step: int) -> Around:
    onset = int(np.searchsorted(series.steps, first_step))
    before = series.values[max(0, onset - BEFORE_STEPS) : onset]
    after = series.values[onset : onset + HORIZON_STEPS]
    if signal == "gradient_norm":
        tiny = np.finfo(np.float64).tiny
        before, after = np.log(np.maximum(before, tiny)), np.log(np.maximum(after, tiny))
    return Around(before, after, series.steps[onset : onset + HORIZON_STEPS])


def _rises(around: Around, reference: Reference, symptom: Symptom) -> bool:
    inside = around.after[around.steps_after <= symptom.last_step] if len(around.after) else around.after
    z = reference.z(inside if len(inside) else around.after[:1])
    if median(z) > RISE_SCALES_LASTING:
        return True
    if len(inside) < HORIZON_STEPS:
        return float(z.max()) > RISE_SCALES
    return _swings(reference.z(around.after))


def _outcome(window: Window, symptom: Symptom, around: Around, reference: Reference) -> str:
    z = reference.z(around.after)
    late, middle = median(z[LATE_STEPS:]), median(z[MIDDLE_STEPS:LATE_STEPS])
    if late <= RECOVERED_SCALES:
        return SWINGING if _swings(z) else RECOVERED
    rising, falling = late - middle > FLAT_SCALES, late - middle < -FLAT_SCALES
    if late <= SHIFTED_SCALES or (falling and late <= HALF_GONE * float(z.max())):
        return RECOVERING
    gradient = _gradient_change(window, symptom.first_step)
    if late > DIVERGED_SCALES and not falling:
        grows = gradient is not None and gradient > DIVERGED_SCALES
        if rising or grows or _is_guessing(window, symptom, around):
            return DIVERGING
    if rising or falling or float(np.var(z[MIDDLE_STEPS:])) > SHIFTED_VARIANCE:
        return SHIFTED
    worse = evaluated_since(window, symptom)
    if worse:
        return WEIGHTS
    quiet = gradient is not None and abs(gradient) <= RECOVERED_SCALES
    return DATA if quiet or worse is False else SHIFTED


def _at_its_end(window: Window, symptom: Symptom, around: Around, reference: Reference, outcome: str) -> str:
    """``outcome``, updated for a symptom that lasts beyond the horizon: it may have gone on rising."""
    signal = _signal(symptom)
    assert signal is not None
    if symptom.last_step <= int(around.steps_after[-1]) or outcome in (DIVERGING, SWINGING):
        return outcome
    row = int(np.searchsorted(window.steps, symptom.last_step, side="right"))
    end = _cut(_rows(window, signal, max(0, row - 2 * HORIZON_STEPS), row), signal, symptom.last_step + 1).before
    if len(end) < HORIZON_STEPS:
        return outcome
    late, now = (median(reference.z(v[LATE_STEPS:])) for v in (around.after, end[-HORIZON_STEPS:]))
    # After a recovery, a later level counts as higher only if it exceeds the whole first rise.
    before = late if outcome != RECOVERED else float(reference.z(around.after).max())
    if now > max(DIVERGED_SCALES, DOUBLED * before):
        return DIVERGING
    return SHIFTED if outcome in (RECOVERED, RECOVERING) and now > SHIFTED_SCALES and now >= late else outcome


def _is_back(window: Window, symptom: Symptom, around: Around, reference: Reference) -> bool:
    """Whether a symptom that lasts beyond the horizon is over. A cumulative detector may alarm for a while after it is,
    so up to a horizon of steps after the symptom's last count, too."""
    signal = _signal(symptom)
    assert signal is not None
    if symptom.last_step <= int(around.steps_after[-1]):
        return False
    row = min(int(np.searchsorted(window.steps, symptom.last_step, side="right")) + HORIZON_STEPS, len(window))
    end = _cut(_rows(window, signal, max(0, row - HORIZON_STEPS), row), signal, int(window.steps[row - 1]) + 1).before
    last = end[LATE_STEPS - HORIZON_STEPS :]
    return len(last) > 0 and median(reference.z(last)) <= RECOVERED_SCALES


def _swings(z: FloatArray) -> bool:
    """Whether variance grew and successive values alternate around the mean: the edge of stability."""
    quarter = np.diff(np.quantile(z, [0.25, 0.75]))[0] / 1.349  # one standard deviation of a normal distribution
    steady = z - z.mean()
    power = float((steady**2).sum())
    correlation = float((steady[1:] * steady[:-1]).sum()) / power if power > 0 else 0.0
    return bool(quarter**2 > SWING_VARIANCE and correlation < SWING_CORRELATION)


def _gradient_change(window: Window, first_step: int) -> float | None:
    """Rise of the logarithm of the gradient norm late after the onset, in scales; None if unknown."""
    around = _around(window, "gradient_norm", first_step)
    if len(around.before) < BEFORE_STEPS_MIN or not around.is_enough:
        return None
    return float(reference_of(around.before).z(np.array([around.late]))[0])


def _is_guessing(window: Window, symptom: Symptom, around: Around) -> bool:
    """Whether the loss is above that of a uniform guess over all tokens."""
    words = window.facts.get("vocabulary", 0.0)
    return _signal(symptom) == "loss" and words > 1.0 and around.late > GUESSING_RATIO * float(np.log(words))


def _last_step(window: Window, symptom: Symptom) -> int:
    """The last step that counts as after the onset: the end of the symptom or the horizon, whichever is later."""
    return max(symptom.last_step, symptom.first_step + HORIZON_STEPS * _stride_near(window, symptom.first_step))


def _stride_near(window: Window, step: int) -> int:
    position = int(np.searchsorted(window.steps, step))
    return stride_of(window.steps[max(0, position - HORIZON_STEPS) : position + HORIZON_STEPS])


def _rate_went_up(window: Window, first_step: int) -> bool:
    """Whether the learning rate rose by half within two logged steps of the onset, but not above its earlier values."""
    position = int(np.searchsorted(window.steps, first_step))
    rate = _rows(window, "learning_rate", max(0, position - HORIZON_STEPS), position + HORIZON_STEPS)
    at = int(np.searchsorted(rate.steps, first_step))
    near = rate.values[max(0, at - NEAR_STEPS - 1) : at + NEAR_STEPS + 1]
    if len(near) < 2 or near.min() <= 0 or near[-1] <= RESTART_RATIO * near[0]:
        return False
    earlier = window.signals["learning_rate"][: max(0, position - NEAR_STEPS)]
    return len(earlier) > 0 and bool(near.max() <= RESTART_RATIO * np.nanmax(earlier, initial=0.0))


def _was_resumed(window: Window, first_step: int) -> bool:
    span = max(RESUME_STEPS, NEAR_STEPS * _stride_near(window, first_step))
    return bool(np.any((window.resumed <= first_step) & (first_step <= window.resumed + span)))


def _epoch_ends(window: Window, first_step: int) -> bool:
    position = int(np.searchsorted(window.steps, first_step))
    epoch = _rows(window, "epoch", max(0, position - EPOCH_STEPS_MIN), position + EPOCH_STEPS_MIN)
    ends = epoch.steps[1:][np.diff(np.floor(epoch.values)) > 0]
    if not len(ends) or (len(ends) > 1 and np.diff(np.searchsorted(window.steps, ends)).min() < EPOCH_STEPS_MIN):
        return False
    return bool(np.abs(np.searchsorted(window.steps, ends) - position).min() <= NEAR_STEPS)
