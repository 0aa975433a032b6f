"""What became of a symptom: the 64 logged steps after its onset against those before it.

The rules are those of section "Classifying the event" of the method: the level after the event is the median of its
steps 48 to 64, in robust standard deviations of the steps before. Only finite values of applied updates count.
"""

from __future__ import annotations

import numpy as np

from steadytrain.model import FloatArray, Symptom, Window
from steadytrain.reference import MAD_TO_SIGMA, stride_of

HORIZON_STEPS = 64
LATE_STEPS = 48
"""The level after an event is the median from here to the horizon."""

BEFORE_STEPS = 512
BEFORE_STEPS_MIN = 8
RECOVERED_SCALES = 1.0
SHIFTED_SCALES = 2.0
DIVERGED_SCALES = 4.0
HALF_GONE = 0.5

RESUME_STEPS = 50
"""Optimizer moments with beta2 = 0.95 have forgotten a resume after 2 / (1 - beta2) = 40 steps."""

RESTART_RATIO = 1.5
RESTART_STEPS = 2

RECOVERED, RECOVERING, DIVERGING, SHIFTED, OPEN = "recovered", "recovering", "diverging", "level-shift", "open"
RESTART, RESUME = "learning-rate-restart", "resume"

TOLD = {
    RECOVERED: "the loss is back where it was",
    RECOVERING: "more than half of it is gone after 64 steps",
    DIVERGING: "the loss is not coming back",
    SHIFTED: "the loss stays at a new level",
    OPEN: "too early to tell what becomes of it",
    RESTART: "it begins where the learning rate goes up again",
    RESUME: "it begins right after a checkpoint was loaded",
}
"""Every course in words."""


def course_of(window: Window, symptom: Symptom) -> str | None:
    """The course of a symptom of the loss or the gradient norm; None for all others, and where nothing was before."""
    signal = next((name for name in symptom.signals if name in ("loss", "gradient_norm")), None)
    if signal is None or symptom.name.startswith("nonfinite"):
        return None
    series = window.applied(signal)
    values = (
        np.log(np.maximum(series.values, np.finfo(np.float64).tiny)) if signal == "gradient_norm" else series.values
    )
    onset = int(np.searchsorted(series.steps, symptom.first_step))
    before = values[max(0, onset - BEFORE_STEPS) : onset]
    after = values[onset : onset + HORIZON_STEPS]
    if len(before) < BEFORE_STEPS_MIN or not len(after):
        return None
    outcome = _outcome(before, after)
    if outcome in (RECOVERED, RECOVERING):
        if _rate_went_up(window, symptom.first_step):
            return RESTART
        if _was_resumed(window, symptom.first_step):
            return RESUME
    return outcome


def is_benign(window: Window, symptom: Symptom, course: str) -> str:
    """Why a symptom with this course does no harm, or ""."""
    if course == RESTART:
        return f"{TOLD[course]}, and comes back down"
    if course == RESUME:
        return f"{TOLD[course]}, and is gone again"
    if course == RECOVERED and _was_clipped(window, symptom):
        return "its gradients were clipped, and the loss is back where it was"
    return ""


def _outcome(before: FloatArray, after: FloatArray) -> str:
    median = float(np.median(before))
    scale = max(MAD_TO_SIGMA * float(np.median(np.abs(before - median))), 1e-3 * abs(median), 1e-6)
    if len(after) < HORIZON_STEPS:
        return OPEN
    late = after[LATE_STEPS:]
    level, excess = float(np.median(late)), float(after.max()) - median
    slope = float(np.median(late)) - float(np.median(after[HORIZON_STEPS // 2 : LATE_STEPS]))
    if level <= median + RECOVERED_SCALES * scale:
        return RECOVERED
    if slope < 0 and level - median <= HALF_GONE * excess:
        return RECOVERING
    if level > median + DIVERGED_SCALES * scale and slope >= 0:
        return DIVERGING
    return SHIFTED if level > median + SHIFTED_SCALES * scale else RECOVERING


def _rate_went_up(window: Window, first_step: int) -> bool:
    """Whether the learning rate rose by half within two logged steps of the onset, to what it had been before."""
    rate = window.series("learning_rate")
    at = int(np.searchsorted(rate.steps, first_step))
    near = rate.values[max(0, at - RESTART_STEPS - 1) : at + RESTART_STEPS + 1]
    earlier = rate.values[: max(0, at - RESTART_STEPS)]
    if len(near) < 2 or not len(earlier) or near.min() <= 0:
        return False
    return bool(near[-1] > RESTART_RATIO * near[0] and near.max() <= RESTART_RATIO * earlier.max())


def _was_resumed(window: Window, first_step: int) -> bool:
    span = max(RESUME_STEPS, 2 * stride_of(window.steps))
    return bool(np.any((window.resumed <= first_step) & (first_step <= window.resumed + span)))


def _was_clipped(window: Window, symptom: Symptom) -> bool:
    clipped = window.series("clip_coefficient").between(symptom.first_step, symptom.last_step)
    return bool(len(clipped) and (clipped.values < 1).any())
