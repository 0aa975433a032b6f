"""A step's loss is far above the earlier level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import FloatArray, IntArray, Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.benign_changes import planned_change
from steadytrain.statistics.calibration import Z_MIN, thresholds
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import MAD_TO_SIGMA, REFERENCE_STEPS, SCALE_FLOOR_RELATIVE
from steadytrain.statistics.rolling_baseline import GAP_STEPS, Track, follow, has_slid, known_first_step
from steadytrain.statistics.table_episodes import stretches

SHORT_ROWS, SHORT_ROWS_MIN = 16, 6
"""Before there is a reference, a value is compared with the last ones: up to, and at least, so many."""

EXCUSED_Z_MAX = 50.0
"""Hard samples of healthy runs stay below 30 robust standard deviations. What lies beyond is another kind of batch
(wrong units, shuffled labels), which somebody has to look at, though gradients were clipped."""


@final
@dataclass(frozen=True)
class LossSpike(Detector):
    """The loss of a step is far above that of the steps before.

    Means:
        One batch, or a few in a row, have a loss far above what the run's noise explains. Most spikes are gone within
        64 steps and do little harm; one that stays is also reported as divergence. The distance z is counted in robust
        standard deviations from the median of the 512 steps that ended 64 steps earlier. Where several single steps of
        at least half its height came and went before it, the data are rough: one more is a note, up to z = 50.

    Causes:
        - a bad batch: repeated n-grams, another language, a corrupt file (OLMo 2, 2501.00656)
        - the update before it was too large: the second moment of Adam lagged the gradient (2304.13013), or the
          learning rate is at the edge of stability (2103.00065)
        - a learning rate that jumped: a restart of the schedule, a resume that lost optimizer state
        - a change of data at an epoch or stage boundary; the end of repeated data looks like a jump, too
        - heavy-tailed loss on small batches: such spikes recur and do no harm

    Next:
        1. Look at the 64 steps after it. If the loss is back at the old level, continue.
        2. Look at the gradient norm and the learning rate of the steps just before, not only at the spike.
        3. Replay the step unchanged before you blame its batch: batches of known spikes were harmless from another
           state (PaLM, 2204.02311; Molybog et al., 2304.09871).
        4. If spikes recur, compare them at a third of the learning rate and with Adam's beta2 at 0.95.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    excused_z_max: ClassVar[float] = EXCUSED_Z_MAX
    bursts: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    spoils_weights: ClassVar[bool] = True
    part_of: ClassVar[str] = "divergence"

    z: float = threshold(
        10.0,
        "robust standard deviations that make a spike until the run's own tail is known; never "
        "below 5. In 5e5 healthy simulated steps 10 never alarmed on Gaussian noise, 5 times in "
        "1e5 on "
        "Student's t with 5 degrees of freedom, 25 times on strongly skewed noise and 67 times on t with 3 degrees "
        "of freedom. From 256 healthy steps on that tail may raise it, from 1,024 lower it to 5 (calibration.py)",
    )
    log_z: float = threshold(
        4.5,
        "the same bound for the logarithm of a positive loss, because noise is skewed: a "
        "Gaussian passes it 3 times in a million",
    )
    early_ratio: float = threshold(
        1.5,
        "before there is a reference (192 logged steps), a spike is this factor above the last "
        "16 values, and its square above their median",
    )
    early_log_z: float = threshold(
        4.0,
        "`log_z` before there is a reference, together with both factors. No alarm on 28 logs of "
        "real runs without a spike, of 15 to 1,657 rows",
    )
    early_warning_ratio: float = threshold(
        10.0,
        "in warm-up, this factor above all earlier values is a warning nevertheless: start-up "
        "transients of healthy logs stay below 4, a healthy run of the zoo with single outliers below 8",
    )
    hole_steps_max: int = threshold(
        16,
        "lower steps that a spike may contain: one refresh of the reference, so that an "
        "oscillating fault is one symptom",
    )
    rough_spikes_min: int = threshold(
        2, "earlier single steps of at least half the height, back at once, that show rough data. Chosen"
    )
    warm_up_steps: int = threshold(
        500, "up to this step of the run a spike is only a note: early losses normally fall and jump"
    )

    def __post_init__(self) -> None:
        if not self.z >= Z_MIN:
            raise ValueError(
                f"z={self.z}: a spike threshold below {Z_MIN:g} marks healthy steps; use {Z_MIN:g} or more"
            )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        track = follow(loss)
        return (*self._early(loss, track), *self._against_reference(window, loss, track))

    def _against_reference(self, window: Window, loss: Series, track: Track) -> list[Symptom]:
        far = np.flatnonzero(track.z > Z_MIN)
        if not len(far):
            return []
        threshold = np.full(len(track), np.inf)
        threshold[far] = thresholds(track, far, before=self.z)
        far = far[track.z[far] > threshold[far]]
        spiked = np.zeros(len(track), np.bool_)
        spiked[far] = _log_z(loss.values, track, far) > self.log_z
        return [
            self._symptom(window, track, spiked, threshold, start, stop - 1)
            for start, stop in stretches(spiked, hole_max=self.hole_steps_max)
        ]

    def _symptom(
        self, window: Window, track: Track, spiked: np.ndarray, threshold: FloatArray, first: int, last: int
    ) -> Symptom:
        last_step = int(track.steps[last])
        first_step = known_first_step(
            track.steps, first, first_seen=track.first_seen, stride=track.stride, last_row=last
        )
        peak = first + int(np.argmax(track.z[first : last + 1]))
        planned = planned_change(window, first_step, last_step)
        height = float(track.values[peak] - track.level[peak])
        earlier = (
            _single_steps(window.applied("loss").values[: track.begin + first], height / 2) if first == last else 0
        )
        rough = earlier >= self.rough_spikes_min and track.z[peak] <= EXCUSED_Z_MAX
        return Symptom(
            name="loss-spike",
            severity="note" if planned or rough or last_step <= self.warm_up_steps else "warning",
            first_step=first_step,
            last_step=last_step,
            message=f"the loss spiked to {track.values[peak]:.4g} {_when(first_step, last_step)}, {track.z[peak]:.3g} "
            f"robust standard deviations above its level of {track.level[peak]:.4g}"
            + (f"; {planned}" if planned else "")
            + (f"; {earlier} single steps before it rose at least half as far and were back at once" if rough else ""),
            signals=("loss",),
            numbers={
                "z": float(track.z[peak]),
                "z_threshold": float(threshold[peak]),
                "loss": float(track.values[peak]),
                "peak_step": float(track.steps[peak]),
                "reference_level": float(track.level[peak]),
                "reference_scale": float(track.scale[peak]),
                "steps": float(spiked[first : last + 1].sum()),
            },
        )

    def _early(self, loss: Series, track: Track) -> list[Symptom]:
        """Spikes among the values that no reference judges, in a log that is short or at its beginning."""
        values = loss.values[: track.begin]
        if len(values) <= SHORT_ROWS_MIN or has_slid(loss.steps, stride=track.stride):
            return []
        before = np.lib.stride_tricks.sliding_window_view(values, SHORT_ROWS_MIN)[:-1]
        rows = SHORT_ROWS_MIN + np.flatnonzero(values[SHORT_ROWS_MIN:] > self.early_ratio * before.max(axis=1))
        spiked = np.zeros(len(values), np.bool_)
        for row in rows.tolist():
            spiked[row] = self._stands_out(values[:row][~spiked[:row]], float(values[row]))
        found = []
        for start, stop in stretches(spiked, hole_max=self.hole_steps_max):
            peak = start + int(np.argmax(values[start:stop]))
            first_step, last_step = int(loss.steps[start]), int(loss.steps[stop - 1])
            huge = values[peak] > self.early_warning_ratio * values[:start].max()
            usual = median(values[max(0, start - SHORT_ROWS) : start])
            found.append(
                Symptom(
                    name="loss-spike",
                    severity="warning" if huge or last_step > self.warm_up_steps else "note",
                    first_step=first_step,
                    last_step=last_step,
                    message=f"the loss spiked to {values[peak]:.4g} {_when(first_step, last_step)}, from a median of "
                    f"{usual:.4g} before",
                    signals=("loss",),
                    numbers={
                        "loss": float(values[peak]),
                        "peak_step": float(loss.steps[peak]),
                        "reference_level": usual,
                        "steps": float(spiked[start:stop].sum()),
                    },
                )
            )
        return found

    def _stands_out(self, before: FloatArray, value: float) -> bool:
        recent = before[-SHORT_ROWS:]
        if len(recent) < SHORT_ROWS_MIN or recent.min() <= 0.0:
            return False
        middle = median(recent)
        if value <= self.early_ratio * recent.max() or value <= self.early_ratio**2 * middle:
            return False
        logs = np.log(recent)
        scale = max(_mad(logs), _mad(np.diff(logs)) / 2**0.5, 1.0 / len(recent))
        return float(np.log(value / middle)) > self.early_log_z * scale


def _single_steps(values: FloatArray, height: float) -> int:
    """How many values lie at least ``height`` above the one before and the two after them."""
    if len(values) < 4:
        return 0
    here = values[1:-2]
    beside = np.maximum(values[:-3], np.maximum(values[2:-1], values[3:]))
    return int((here - beside >= height).sum())


def _when(first_step: int, last_step: int) -> str:
    return f"at step {first_step}" if first_step == last_step else f"from step {first_step} to {last_step}"


def _mad(values: FloatArray) -> float:
    return MAD_TO_SIGMA * median(np.abs(values - median(values)))


def _log_z(values: FloatArray, track: Track, rows: IntArray) -> FloatArray:
    """The distance of ``rows`` of the track on a logarithmic scale; Inf where the signal was not positive."""
    distances = np.full(len(rows), np.inf)
    changes = np.flatnonzero((np.diff(track.level) != 0.0) | (np.diff(track.scale) != 0.0)) + 1
    held_since = np.append(0, changes)[np.searchsorted(changes, rows, side="right")]
    for since in np.unique(held_since).tolist():
        stop = track.begin + since - GAP_STEPS
        reference = values[max(0, stop - REFERENCE_STEPS) : stop]
        level = float(track.level[since])
        if level > 0.0 and reference.min() > 0.0:
            here = held_since == since
            scale = max(_mad(np.log(reference)), SCALE_FLOOR_RELATIVE)
            distances[here] = np.log(track.values[rows[here]] / level) / scale
    return distances
