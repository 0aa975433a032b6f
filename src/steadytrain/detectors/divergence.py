"""The loss drifts up and stays up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from steadytrain.core.model import FloatArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.benign_changes import planned_change
from steadytrain.statistics.medians import median, row_medians
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.statistics.rolling_baseline import Track, follow, has_slid, holds_start, known_first_step, stride_of
from steadytrain.statistics.table_episodes import stretches

INITIAL_STEPS = 5
"""The initial loss is the median of this many steps: one odd first batch must not set it."""

INITIAL_RATIO = 1.5
"""If that median is this factor above the first loss, and training stays there, the first loss is the initial one."""

HOLE_STEPS_MAX = 64


@final
@dataclass(frozen=True)
class Divergence(Detector):
    """The loss rises and stays up for many steps.

    Means:
        The mean of the loss has risen, though perhaps no single step stands out. A one-sided CUSUM adds up how far the
        loss is above its earlier level; it alarms within about ten steps of a shift by two standard deviations.
        `first_step` is the step at which the sum last left zero: look there, not at the alarm. "critical" means that
        the loss is a full nat above its reference or above where training began.

    Causes:
        - a learning rate above the edge of stability, or a warm-up that ended too high (2103.00065, 2406.09405)
        - attention logits or output logits that grow without bound (2309.14322: z-loss, QK-norm)
        - damaged state: optimizer moments lost or mixed up on a resume, a bad update a few hundred steps earlier
        - low precision: a biased kernel (flash attention in bfloat16, 2510.04212), gradients that underflow
        - no fault: a new data stage, longer sequences, a higher learning rate after a restart (2308.04014), the end of
          a stretch of repeated data

    Next:
        1. Compare `first_step` with the schedule, the data plan and the last resume. A planned change explains most
           cases.
        2. Evaluate a fixed batch on a checkpoint from before and from now. If its loss is unchanged, the data changed,
           not the model.
        3. Check whether the gradient norm rose first, and in which tensors.
        4. Go back to a checkpoint before `first_step`; replay unchanged first, then with one change at a time.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    bursts: ClassVar[bool] = True
    counts_rising_loss: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    spoils_weights: ClassVar[bool] = True

    rise_nats: float = threshold(
        1.0,
        "a loss this far above the initial one, or above its reference, for `rise_steps` is critical. "
        "Absolute and so usable in warm-up; made for a cross-entropy in nats, where one nat is a factor e in "
        "likelihood",
    )
    rise_steps: int = threshold(20, "steps in a row for that rule: start-up transients of healthy runs last about ten")
    rise_rows: int = threshold(
        5,
        "logged steps that those steps must hold at least: in a log of every tenth step two points are "
        "no trend. A log of 30 points shows a rise by its last five",
    )
    early_ratio: float = threshold(
        1.5,
        "before there is a reference (192 logged steps), the loss must also be this many times "
        "its lowest level so far for `rise_steps`",
    )
    rise_scales: float = threshold(
        4.0,
        "both rises must also exceed this many robust standard deviations, so that a large loss "
        "in other units than nats is not critical by its size alone. The level at which a spike "
        "counts as not recovered",
    )
    warm_up_steps: int = threshold(
        500,
        "up to this step of the run the CUSUM raises only a note; the absolute rule holds from the first. "
        "Statistical alarms before it are mostly the warm-up of the learning rate",
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        track = follow(loss)
        found: list[Symptom] = []
        for rule in (self._above_start, self._above_best, self._drifts):
            # One rise is reported once, by the first of the rules, with the earliest alarm of all.
            for new in rule(window, loss, track):
                same = next((row for row, told in enumerate(found) if _overlap(new, told)), None)
                if same is None:
                    found.append(new)
                else:
                    found[same] = _with_alarm_of(found[same], new)
        return tuple(sorted(found, key=lambda symptom: symptom.first_step))

    def _drifts(self, window: Window, loss: Series, track: Track) -> list[Symptom]:
        """The CUSUM. What its slack and alarm are, the reference says."""
        alarms = np.flatnonzero(track.cusum > track.alarm)
        if not len(alarms):
            return []
        onsets = track.onset[alarms]
        starts = np.flatnonzero(np.diff(onsets, prepend=-1))
        lasts = alarms[np.append(starts[1:], len(alarms)) - 1]
        return [
            self._drift(window, track, int(onsets[start]), int(alarms[start]), int(last))
            for start, last in zip(starts, lasts, strict=True)
        ]

    def _drift(self, window: Window, track: Track, first: int, alarm: int, last: int) -> Symptom:
        level, last_step = float(track.level[first]), int(track.steps[last])
        first_step = known_first_step(
            track.steps, first, first_seen=track.first_seen, stride=track.stride, last_row=last
        )
        rise = _rise(track.values[first : last + 1], level, self.rise_steps)
        critical = rise > max(self.rise_nats, self.rise_scales * float(track.scale[first]))
        planned = None if critical else planned_change(window, first_step, int(track.steps[alarm]))
        return Symptom(
            name="divergence",
            severity="critical" if critical else "note" if planned or last_step <= self.warm_up_steps else "warning",
            first_step=first_step,
            last_step=last_step,
            message=_told(track, first, last, first_step) + (f"; {planned}" if planned else ""),
            signals=("loss",),
            numbers={
                "cusum": float(track.cusum[first : last + 1].max()),
                "cusum_alarm": float(track.alarm[alarm]),
                "alarm_step": float(track.steps[alarm]),
                "loss": _recent(track.values[: last + 1]),
                "reference_level": level,
                "reference_scale": float(track.scale[first]),
            },
        )

    def _above_start(self, window: Window, loss: Series, track: Track) -> list[Symptom]:
        """The absolute rule, where the window holds the run's start."""
        if not holds_start(window.steps, stride=stride_of(window.steps)) or len(loss) < self.rise_rows:
            return []
        first, typical = float(loss.values[0]), median(loss.values[:INITIAL_STEPS])
        blown_up = 0.0 < INITIAL_RATIO * first < typical  # it stands above already, and its noise tells nothing
        noise = (INITIAL_RATIO - 1.0) * first if blown_up else _noise(loss.values[: self.rise_steps]) * self.rise_scales
        initial, rise = first if blown_up else typical, max(self.rise_nats, noise)
        bound = initial + rise
        found = []
        for start, stop in self._lasting(loss, loss.values > bound):
            # The CUSUM's onset, where it has one, so that an alarm that it raised before keeps its first step.
            row = start - track.begin
            first_step = int(track.steps[track.onset[row]] if row >= 0 and track.cusum[row] > 0 else loss.steps[start])
            now = _recent(loss.values[:stop])
            found.append(
                Symptom(
                    name="divergence",
                    severity="critical",
                    first_step=first_step,
                    last_step=int(loss.steps[stop - 1]),
                    message=f"the loss rises since step {first_step} and is {now:.4g} at step {loss.steps[stop - 1]}, "
                    f"above the {initial:.4g} at which training began",
                    signals=("loss",),
                    numbers={
                        "loss": now,
                        "initial_loss": initial,
                        "rise_threshold": rise,
                        "alarm_step": self._alarm_step(loss, start),
                        "steps": float(stop - start),
                    },
                )
            )
        return found

    def _above_best(self, window: Window, loss: Series, track: Track) -> list[Symptom]:
        """A rise above the lowest level so far, among the values that no reference judges."""
        values = loss.values[: track.begin]
        if len(values) < 2 * self.rise_rows or has_slid(loss.steps, stride=track.stride):
            return []
        level = row_medians(sliding_window_view(values, self.rise_rows))
        best = np.concatenate([np.full(self.rise_rows, np.inf), np.minimum.accumulate(level)[:-1]])
        bound = np.maximum(best + max(self.rise_nats, self.rise_scales * _noise(values)), self.early_ratio * best)
        found = []
        for start, stop in self._lasting(Series(loss.steps[: len(values)], values), values > bound):
            lowest, now, last_step = float(best[start]), _recent(values[:stop]), int(loss.steps[stop - 1])
            if (loss.values[:start] > bound[start]).any() and last_step <= self.warm_up_steps:
                continue  # it was as high before, and may still be on its way
            found.append(
                Symptom(
                    name="divergence",
                    severity="note" if last_step <= self.warm_up_steps else "warning",
                    first_step=int(loss.steps[start]),
                    last_step=last_step,
                    message=f"the loss rises since step {loss.steps[start]}: {now:.4g} at step {last_step}, against "
                    f"{lowest:.4g} at its lowest",
                    signals=("loss",),
                    numbers={
                        "loss": now,
                        "reference_level": lowest,
                        "alarm_step": self._alarm_step(loss, start),
                        "steps": float(stop - start),
                    },
                )
            )
        return found

    def _alarm_step(self, loss: Series, start: int) -> float:
        """Where a stretch that begins at row ``start`` has lasted for long enough."""
        long = int(np.searchsorted(loss.steps, loss.steps[start] + self.rise_steps - 1))
        return float(loss.steps[min(max(long, start + self.rise_rows - 1), len(loss) - 1)])

    def _lasting(self, loss: Series, above: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """Stretches of ``above`` that last ``rise_steps`` and hold ``rise_rows``; those near each other are one."""
        kept = np.zeros(len(above), np.bool_)
        for start, stop in stretches(above):
            span = int(loss.steps[stop - 1] - loss.steps[start]) + 1
            if stop - start >= self.rise_rows and span >= self.rise_steps:
                kept[start:stop] = True
        return stretches(kept, hole_max=HOLE_STEPS_MAX)


def _overlap(one: Symptom, other: Symptom) -> bool:
    return one.first_step <= other.last_step and other.first_step <= one.last_step


def _with_alarm_of(told: Symptom, other: Symptom) -> Symptom:
    alarm = min(told.numbers["alarm_step"], other.numbers["alarm_step"])
    return replace(told, numbers={**told.numbers, "alarm_step": alarm})


def _told(track: Track, first: int, last: int, first_step: int) -> str:
    """What the drift is. Its sum falls more slowly than the loss, so the loss may be back while it still alarms."""
    now, level, last_step = _recent(track.values[: last + 1]), float(track.level[first]), track.steps[last]
    before = f"against a level of {level:.4g} before"
    if now > level + float(track.scale[first]) or last - first < INITIAL_STEPS:
        return f"the loss drifts up since step {first_step}: {now:.4g} at step {last_step}, {before}"
    medians = row_medians(sliding_window_view(track.values[first : last + 1], INITIAL_STEPS))
    return (
        f"the loss drifted up from step {first_step} on, to {medians.max():.4g}, {before}; at step {last_step} it is "
        f"{now:.4g} again"
    )


def _recent(values: FloatArray) -> float:
    """The loss "now": the median of a few steps, because one says little."""
    return median(values[-INITIAL_STEPS:])


def _rise(values: FloatArray, level: float, steps: int) -> float:
    """The most that ``steps`` values in a row all lie above ``level``."""
    if len(values) < steps:
        return -np.inf
    return float(sliding_window_view(values, steps).min(axis=1).max()) - level


def _noise(values: FloatArray) -> float:
    """Robust standard deviation from step to step, which a steep start does not inflate."""
    return MAD_TO_SIGMA / 2**0.5 * median(np.abs(np.diff(values)))
