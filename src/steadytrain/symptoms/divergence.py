"""The loss drifts up and stays up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from steadytrain.model import FloatArray, Symptom, Window
from steadytrain.reference import (
    MAD_TO_SIGMA,
    Track,
    follow,
    holds_start,
    known_first_step,
    newest_episode,
    stride_of,
)
from steadytrain.symptoms import Detector

INITIAL_STEPS = 5
"""The initial loss is the median of this many steps: one odd first batch must not set it."""


@final
@dataclass(frozen=True)
class Divergence(Detector):
    """The loss drifts up and does not come back.

    Means:
        The mean of the loss has risen, though perhaps no single step stands out. A one-sided CUSUM adds up how far the
        loss lies above its level of a while ago; it alarms within about ten steps of a shift by two standard
        deviations. `first_step` is where the sum last left zero: look there, not where the alarm came. "critical" means
        that the loss stands a full nat above its reference or above where training began.

    Causes:
        - a learning rate above the edge of stability, or a warm-up that ended too high (2103.00065, 2406.09405)
        - attention logits or output logits that grow without bound (2309.14322: z-loss, QK-norm)
        - damaged state: optimizer moments lost or mixed up on a resume, a bad update a few hundred steps earlier
        - low precision: a biased kernel (flash attention in bfloat16, 2510.04212), gradients that underflow
        - no fault: a new data stage, longer sequences, a higher learning rate after a restart (2308.04014), the end of
          a stretch of repeated data

    Next:
        1. Compare `first_step` with the schedule, the data plan and the last resume. A planned change explains most.
        2. Evaluate a fixed batch on a checkpoint from before and from now. Unchanged: the data moved, not the model.
        3. See whether the gradient norm rose first, and in which tensors.
        4. Go back to a checkpoint before `first_step`; replay unchanged first, then with one change at a time.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)

    rise_nats: float = field(
        default=1.0,
        metadata={
            "about": "a loss this far above the initial one, or above its reference, for `rise_steps` is critical. "
            "Absolute and so usable in warm-up; made for a cross-entropy in nats, where one nat is a factor e in "
            "likelihood"
        },
    )
    rise_steps: int = field(
        default=20,
        metadata={"about": "steps in a row for that rule: start-up transients of healthy runs last about ten"},
    )
    recent_steps: int = field(
        default=64,
        metadata={
            "about": "how far back from the newest step an alarm is still reported: four looks at 16 steps each, so "
            "that none is lost when a look fails"
        },
    )
    rise_scales: float = field(
        default=4.0,
        metadata={
            "about": "both rises must also exceed this many robust standard deviations, so that a loss that is not "
            "in nats and swings by tens is not critical by its size. The level at which a spike counts as not "
            "recovered"
        },
    )
    warm_up_steps: int = field(
        default=500,
        metadata={
            "about": "up to this step of the run the CUSUM raises only a note; the absolute rule holds from the first. "
            "Statistical alarms before it are mostly the warm-up of the learning rate"
        },
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        symptom = self._newest(window)
        return (symptom,) if symptom is not None else ()

    def _newest(self, window: Window) -> Symptom | None:
        track = follow(window.applied("loss"))
        return self._above_start(window, track) or self._drift(window, track)

    def _drift(self, window: Window, track: Track) -> Symptom | None:
        """The CUSUM: slack 0.5 and alarm 15, or 1.0 and 30 where the reference has a long memory."""
        alarms = np.flatnonzero(track.cusum > track.alarm)
        if not len(alarms):
            return None
        last = int(alarms[-1])
        last_step = int(track.steps[last])
        if last_step <= window.steps[-1] - self.recent_steps * track.stride:
            return None
        first = int(track.onset[last])
        median = float(track.median[first])
        first_step = known_first_step(track.steps, first, first_seen=track.first_seen, stride=track.stride)
        rise = _rise(track.values[first : last + 1], median, self.rise_steps)
        critical = rise > max(self.rise_nats, self.rise_scales * float(track.scale[first]))
        return Symptom(
            name="divergence",
            severity="critical" if critical else "note" if last_step <= self.warm_up_steps else "warning",
            first_step=first_step,
            last_step=last_step,
            message=f"the loss drifts up since step {first_step}: {_recent(track.values[: last + 1]):.4g} now, against "
            f"a median of {median:.4g} before",
            signals=("loss",),
            numbers={
                "cusum": float(track.cusum[last]),
                "cusum_alarm": float(track.alarm[last]),
                "alarm_step": float(track.steps[alarms[np.searchsorted(alarms, first)]]),
                "loss": _recent(track.values[: last + 1]),
                "reference_median": median,
                "reference_scale": float(track.scale[first]),
            },
        )

    def _above_start(self, window: Window, track: Track) -> Symptom | None:
        """The absolute rule, where the window holds the run's start."""
        loss = window.applied("loss")
        stride = stride_of(window.steps)
        if not holds_start(window.steps, stride=stride) or len(loss) < self.rise_steps:
            return None
        initial = float(np.median(loss.values[:INITIAL_STEPS]))
        rise = max(self.rise_nats, self.rise_scales * _noise(loss.values[: self.rise_steps]))
        above = _stretches(loss.values > initial + rise, self.rise_steps)
        streak = newest_episode(above, hole_rows_max=self.recent_steps)
        if streak is None:
            return None
        first, last = streak
        last_step = int(loss.steps[last])
        if last_step <= window.steps[-1] - self.recent_steps * stride:
            return None
        # The CUSUM's onset, where it has one, so that an alarm that it raised before keeps its first step.
        row = int(np.searchsorted(track.steps, loss.steps[first]))
        tracked = row < len(track) and track.steps[row] == loss.steps[first] and track.cusum[row] > 0.0
        first_step = int(track.steps[track.onset[row]]) if tracked else int(loss.steps[first])
        return Symptom(
            name="divergence",
            severity="critical",
            first_step=first_step,
            last_step=last_step,
            message=f"the loss rises since step {first_step} and is {_recent(loss.values[: last + 1]):.4g} now, above "
            f"the {initial:.4g} at which training began",
            signals=("loss",),
            numbers={
                "loss": _recent(loss.values[: last + 1]),
                "initial_loss": initial,
                "rise_threshold": rise,
                "steps": float(above[first : last + 1].sum()),
            },
        )


def _recent(values: FloatArray) -> float:
    """The loss "now": the median of a few steps, because one says little."""
    return float(np.median(values[-INITIAL_STEPS:]))


def _rise(values: FloatArray, level: float, steps: int) -> float:
    """The most that ``steps`` values in a row all lie above ``level``."""
    if len(values) < steps:
        return -np.inf
    return float(sliding_window_view(values, steps).min(axis=1).max()) - level


def _noise(values: FloatArray) -> float:
    """Robust standard deviation from step to step, which a steep start does not inflate."""
    return MAD_TO_SIGMA / 2**0.5 * float(np.median(np.abs(np.diff(values))))


def _stretches(above: NDArray[np.bool_], steps: int) -> NDArray[np.bool_]:
    """``above`` without its stretches of True that are shorter than ``steps``."""
    edges = np.flatnonzero(np.diff(above.astype(np.int8), prepend=0, append=0))
    kept = np.zeros(len(above), np.bool_)
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        if stop - start >= steps:
            kept[start:stop] = True
    return kept
