"""What training had gained is lost, judged by its consequence and from the first steps on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from steadytrain.core.model import FloatArray, IntArray, Series, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.benign_changes import planned_change
from steadytrain.statistics.reference import MAD_TO_SIGMA, VALUE_MAX, references_before
from steadytrain.statistics.rolling_baseline import TRACK_STEPS_MAX, has_slid, stride_of

LEVEL_ROWS = 5
"""A level is the median of so many values: one or two odd batches do not set it."""

REFERENCE_ROWS = 16
"""The best level is that of so many values, or of as many as there are from ``LEVEL_ROWS`` on."""

NOISE_ROWS = 64
MEMORY_ROWS = 10
"""Values that resemble the last ones (documents in order) wander; changes over so many rows show how far."""

LONG_ROWS, LONG_SCALES = 32, 1.5
"""After so many rows the median of ``REFERENCE_ROWS`` values is the level, and so little noise suffices."""

LEARNED_SCALES = 4.0
"""Progress smaller than this many scales of noise is none yet."""

SLACK_SCALES = 1.0
"""The lowest of many medians lies below the level by chance, by up to about one scale."""

ABRUPT_ROWS, ABRUPT_ROWS_UNLEARNED, ABRUPT_SHARE = 32, 12, 0.5
"""At least this share of a rise comes within so many rows; what grows more slowly (a loss with an annealed term, a sum
over episodes that get longer) is left to the drift detectors."""

NEAR_BOUND, BACK_SHARE = 0.7, 0.1
SINGLE_SCALES = 2.0
FALLING_SHARE, FALLING_LOST = 0.75, 2.0
FIRST_ODD = 1.5
FAR_PROGRESS, FAR_SCALES, FAR_ROWS = 5.0, 20.0, 3
"""A level that stands this many times the progress above the best, and this far out of the noise, needs few rows: it
undid all, and what comes after it is a training from somewhere else."""


@final
@dataclass(frozen=True)
class LostProgress(Detector):
    """A good part of what training had gained is lost.

    Means:
        Progress is the distance from the loss at the start to the best level so far. The loss rose by a large share of
        it, against what its noise explains, and stayed there. "critical" means that most of the progress was still
        lost 64 logged steps later; a note, that the loss came back within a few steps. Before anything was learned,
        a positive loss rose far above where it began. It looks at the first 2,048 logged steps, from the sixth on.

    Causes:
        - a learning rate that is too high, or jumped
        - a batch or a stretch of data that is damaged: wrong units, shuffled or renumbered labels, random tokens
        - weights or optimizer state that were damaged, reset or restored only in part
        - no fault: a harder stage of a curriculum, another domain, a term of the loss that was switched on

    Next:
        1. Compare `first_step` with the schedule, the data plan and the last resume.
        2. Look at the learning rate, the gradient norm and the batch of the step just before it.
        3. Replay the step unchanged, then with one change at a time.
        4. Go on from a checkpoint before `first_step` if the loss does not come back.
    """

    needs: ClassVar[tuple[str, ...]] = ("loss",)
    bursts: ClassVar[bool] = True
    counts_rising_loss: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    hasty: ClassVar[bool] = True

    lost_share: float = threshold(
        0.35,
        "share of the progress so far that is lost. Held-out losses of planted faults that lost more than a fifth were "
        "counted as harmed; training losses are noisier, and a quarter marked healthy curricula",
    )
    evidence_min: float = threshold(
        1e4,
        "what an e-CUSUM of the distances from the best level must reach (Student's t with 4 degrees of freedom, "
        "calibrator 0.5 / sqrt(p)); the smaller distance of the linear and the log scale counts. Were the distances "
        "exchangeable, a run of 10,000 steps would reach it by chance about once",
    )
    noise_scales: float = threshold(2.5, "the median of 5 losses stands this many scales of one loss above the best")
    stay_rows: int = threshold(8, "logged steps for which it stays where all progress is lost")
    part_rows: int = threshold(
        16, "the same where a part of it is: a target network that moved is caught up with by then"
    )
    falling_rows: int = threshold(
        20, "the same while the loss falls again, below 0.75 of its peak and twice the progress: it may be on its way"
    )
    habit_ratio: float = threshold(1.2, "the rise must be this many times the largest one from which the run came back")
    unlearned_scales: float = threshold(10.0, "before anything was learned: scales above the loss at the start")
    unlearned_ratio: float = threshold(
        2.5, "and times that loss, where it is positive: first steps of healthy runs rise by less"
    )
    critical_share: float = threshold(0.6, "share of the progress that is critical, if it is lost for `critical_rows`")
    critical_rows: int = threshold(64, "the horizon after which the course of a symptom is judged")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        if len(loss) <= LEVEL_ROWS or has_slid(loss.steps, stride=stride_of(loss.steps)):
            return ()
        loss = Series(loss.steps[:TRACK_STEPS_MAX], np.clip(loss.values[:TRACK_STEPS_MAX], -VALUE_MAX, VALUE_MAX))
        levels = _levels(loss.values)
        rise = levels.now - levels.best
        progress = np.maximum(levels.start - levels.best, LEARNED_SCALES * levels.scale)
        lost = np.flatnonzero((rise >= self.lost_share * progress) & (rise >= LONG_SCALES * levels.scale))
        found: list[Symptom] = []
        row, usual = 0, 0.0
        while len(ahead := lost[np.searchsorted(lost, row) :]):
            rise_ = _rise_at(levels, int(ahead[0]))
            surprise = np.flatnonzero(_evidence(levels, rise_) >= np.log(self.evidence_min))
            if len(surprise):
                found.append(self._symptom(window, loss, rise_, self._alarm(levels, rise_, usual, int(surprise[0]))))
            row, usual = rise_.stop, max(usual, float((levels.now[rise_.onset : rise_.stop] - rise_.best).max()))
        return tuple(found)

    def _alarm(self, levels: _Levels, rise: _Rise, usual: float, surprise: int) -> int | None:
        """The row at which the rise has lasted for long enough, None where it has not."""
        lost, floor = self.lost_share * rise.progress, -np.inf
        learned = rise.progress >= LEARNED_SCALES * rise.noise
        if not learned and levels.start <= 0:
            return None  # a return, or a likelihood: nothing says that a rise from its start is harm
        if not learned:
            far = levels.start + FAR_SCALES * rise.noise
            high = min(self.unlearned_ratio * levels.start, far)
            floor = max(levels.start + self.unlearned_scales * rise.noise, high) - rise.best
        bound = max(lost, self.noise_scales * rise.noise, self.habit_ratio * usual, floor)
        rows = np.arange(rise.stop - rise.onset)
        over = levels.now[rise.onset : rise.stop] - rise.best
        above = over >= bound
        held = np.where(
            np.logical_or.accumulate(above),
            rows - np.maximum.accumulate(np.where(over >= NEAR_BOUND * bound, -1, rows)),
            0,
        )
        earlier = np.maximum(rise.onset + rows - (ABRUPT_ROWS if learned else ABRUPT_ROWS_UNLEARNED), 0)
        jumps = levels.now[rise.onset : rise.stop] - levels.now[earlier] >= ABRUPT_SHARE * over
        falls = (over < FALLING_SHARE * np.maximum.accumulate(over)) & (
            over < FALLING_LOST * max(rise.progress, LEARNED_SCALES * rise.noise)
        )
        stays = np.where(over >= rise.progress, self.stay_rows, self.part_rows)
        alarms = (held >= np.where(falls, self.falling_rows, stays)) & np.logical_or.accumulate(above & jumps)
        if learned and len(rows) > LONG_ROWS:
            values = levels.values[rise.onset + LONG_ROWS - REFERENCE_ROWS : rise.stop]
            long = np.median(sliding_window_view(values, REFERENCE_ROWS), axis=1)[: len(rows) - LONG_ROWS] - rise.best
            jumped = np.logical_or.accumulate(jumps & (over >= lost))[LONG_ROWS:]
            alarms[LONG_ROWS:] |= (long >= max(lost, LONG_SCALES * rise.noise, self.habit_ratio * usual)) & jumped
        yard = FAR_PROGRESS * max(rise.progress, LEARNED_SCALES * rise.noise)
        far_off = over >= max(yard, FAR_SCALES * rise.noise, (self.unlearned_ratio - 1.0) * levels.start)
        alarms |= np.cumsum(far_off) >= FAR_ROWS
        alarms[:surprise] = False
        return rise.onset + int(np.argmax(alarms)) if alarms.any() else None

    def _symptom(self, window: Window, loss: Series, rise: _Rise, alarm: int | None) -> Symptom:
        values = loss.values[rise.onset : rise.stop]
        first_step, last_step = int(loss.steps[rise.onset]), int(loss.steps[rise.stop - 1])
        now, yard = float(np.median(values[-LEVEL_ROWS:])), max(rise.progress, LEARNED_SCALES * rise.noise)
        late = (float(np.median(values[-REFERENCE_ROWS:])) - rise.best) / yard
        severity: Severity = "note" if alarm is None else "warning"
        if alarm is not None and len(values) >= self.critical_rows and late >= self.critical_share:
            severity = "critical"
        planned = planned_change(window, first_step, last_step) if alarm is not None else None
        learned = rise.progress >= LEARNED_SCALES * rise.noise
        share = max(0.0, min((now - rise.best) / yard, 99.0))
        what = f", which loses {share:.0%} of the progress so far" if learned else ", before anything was learned"
        return Symptom(
            name="lost-progress",
            severity="note" if planned else severity,
            first_step=first_step,
            last_step=last_step,
            message=f"the loss rose from {rise.best:.4g} at step {first_step} to {now:.4g} at step {last_step}{what}"
            + (f"; {planned}" if planned else ""),
            signals=("loss",),
            numbers={
                "lost_share": share,
                "loss": now,
                "peak_loss": float(values.max()),
                "reference_level": rise.best,
                "reference_scale": rise.noise,
                "initial_loss": rise.best + rise.progress,
                "steps": float(len(values)),
                **({} if alarm is None else {"alarm_step": float(loss.steps[alarm])}),
            },
        )


@dataclass(frozen=True)
class _Levels:
    """The loss row by row: its level now, the best level before, the scale there and the row after it."""

    values: FloatArray
    now: FloatArray
    best: FloatArray
    scale: FloatArray
    best_stop: IntArray
    start: float


@dataclass(frozen=True)
class _Rise:
    """Rows ``onset`` to ``stop`` (exclusive), in which the loss stands above its best level."""

    onset: int
    stop: int
    best: float
    best_stop: int
    noise: float
    progress: float


def _levels(values: FloatArray) -> _Levels:
    padded = np.concatenate([np.full(LEVEL_ROWS - 1, values[0]), values])
    stops = np.arange(LEVEL_ROWS, len(values))
    unit = float(np.median(np.abs(values[:LEVEL_ROWS]))) or 1.0  # a reference has a least scale, made for nats
    references = references_before(values / unit, stops, width=REFERENCE_ROWS)
    best = np.minimum.accumulate(references.level)
    at = np.maximum.accumulate(np.where(references.level == best, np.arange(len(stops)), 0))
    best, scale = unit * best, unit * references.scale[at]
    first, typical = float(values[0]), float(np.median(values[:LEVEL_ROWS]))
    unknown = np.full(LEVEL_ROWS, np.inf)
    return _Levels(
        values=values,
        now=np.median(sliding_window_view(padded, LEVEL_ROWS), axis=1),
        best=np.concatenate([unknown, best]),
        scale=np.concatenate([unknown, scale]),
        best_stop=np.concatenate([np.zeros(LEVEL_ROWS, np.int64), stops[at]]),
        start=first if typical > FIRST_ODD * first > 0 else typical,
    )


def _rise_at(levels: _Levels, row: int) -> _Rise:
    best, noise, values = float(levels.best[row]), _noise(levels, row), levels.values
    before = np.flatnonzero(values[max(1, row - NOISE_ROWS) : row] <= best + SINGLE_SCALES * noise)
    onset = max(1, row - NOISE_ROWS) + (int(before[-1]) + 1 if len(before) else 0)
    progress = levels.start - best
    back = np.flatnonzero(levels.now[row + 1 :] < best + max(BACK_SHARE * progress, noise))
    stop = row + 1 + int(back[0]) if len(back) else len(values)
    return _Rise(onset, stop, best, int(levels.best_stop[row]), noise, progress)


def _noise(levels: _Levels, row: int) -> float:
    """The scale of one loss before a rise, by the changes to the next value and to one that is some rows later."""
    stop = int(levels.best_stop[row])
    before = levels.values[max(0, stop - NOISE_ROWS) : max(stop, row - LEVEL_ROWS // 2)]
    changes = MAD_TO_SIGMA / 2**0.5 * float(np.median(np.abs(np.diff(before))))
    if stop < REFERENCE_ROWS:
        changes = max(changes, float(np.abs(np.diff(levels.values[:stop])).max()) / 2**0.5)
    if len(before) >= 4 * MEMORY_ROWS:
        later = before[MEMORY_ROWS:] - before[:-MEMORY_ROWS]
        changes = max(changes, MAD_TO_SIGMA / 2**0.5 * float(np.median(np.abs(later - np.median(later)))))
    return max(min(float(levels.scale[row]), 1.3 * changes), changes, float(np.finfo(np.float64).tiny))


def _evidence(levels: _Levels, rise: _Rise) -> FloatArray:
    """The logarithm of the e-CUSUM at each row of a rise, on the scale that is surprised less."""
    values = levels.values[rise.onset : rise.stop]
    z = (values - rise.best) / rise.noise
    reference = levels.values[max(0, rise.best_stop - REFERENCE_ROWS) : rise.best_stop]
    if rise.best > 0 and reference.min() > 0 and values.min() > 0:
        logs = np.log(reference)
        scale = MAD_TO_SIGMA * float(np.median(np.abs(logs - np.median(logs))))
        z = np.minimum(z, np.log(values / rise.best) / max(scale, 0.5 * rise.noise / rise.best))
    sums = np.concatenate([[0.0], np.cumsum(_log_e(z - SLACK_SCALES))])
    return (sums - np.minimum.accumulate(sums))[1:]


def _log_e(z: FloatArray) -> FloatArray:
    """The logarithm of the e-value of each distance: calibrator 0.5 / sqrt(p), p of Student's t with 4 degrees."""
    z = np.clip(z, -1e6, 1e6)
    wide = 1.0 + z**2 / 4.0
    p: NDArray[np.float64] = 0.5 - 0.375 * z / np.sqrt(wide) * (1.0 - z**2 / (12.0 * wide))
    found: FloatArray = np.log(0.5) - 0.5 * np.log(np.clip(p, 1e-6, 1.0))
    return found
