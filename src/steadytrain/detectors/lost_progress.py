"""What training had gained is lost, judged by its consequence and from the first steps on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from steadytrain.core.model import FloatArray, IntArray, Series, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import Detector
from steadytrain.statistics.benign_changes import planned_change
from steadytrain.statistics.corroboration import Corroboration
from steadytrain.statistics.medians import median, row_medians
from steadytrain.statistics.progress import (
    LEVEL_ROWS,
    REFERENCE_ROWS,
    Levels,
    Rise,
    levels_of,
    rise_at,
)
from steadytrain.statistics.reference import VALUE_MAX
from steadytrain.statistics.rolling_baseline import TRACK_STEPS_MAX, has_slid, stride_of
from steadytrain.statistics.run_away import ran_away, rate_that_grew
from steadytrain.statistics.script_rows import script_rows

LONG_ROWS, LONG_SCALES = 32, 1.5
"""After so many rows the median of ``REFERENCE_ROWS`` values is the level, and so little noise suffices."""

LEARNED_SCALES = 4.0
"""Progress smaller than this many scales of noise is none yet."""

ABRUPT_ROWS, ABRUPT_ROWS_UNLEARNED, ABRUPT_SHARE, ABRUPT_SHARE_UNLEARNED = 32, 12, 0.5, 0.75
"""At least this share of a rise comes within so many rows; what grows more slowly (a loss with an annealed term, a sum
over episodes that get longer) is left to the drift detectors."""

NEAR_BOUND = 0.7
FALLING_SHARE, FALLING_LOST = 0.75, 2.0
ZERO_SHARE = 0.25
"""A loss that begins within this share of its progress from 0, and falls below it, began at 0."""

FAR_PROGRESS, FAR_SCALES, FAR_STARTS, FAR_ROWS = 5.0, 20.0, 1.5, 3
"""A level that stands this many times the progress above the best, and this far out of the noise, needs few rows: it
undid all, and what comes after it is a training from somewhere else."""


@final
@dataclass(frozen=True)
class LostProgress(Detector):
    """A good part of what training had gained is lost.

    Means:
        Progress is the distance from the loss at the start to the best level so far. The loss rose by a large share of
        it, against what its noise explains, and stayed there, or it undid all progress at once. "critical" means that
        most of the progress was still lost 64 logged steps later; a note, that the loss came back within a few steps,
        or that a third of the progress was lost at once and for 12 logged steps, as other data do, too. Four notes of
        the first kind within 256 logged steps are a warning. A change of the gradient norm or a jump of the rate in
        the same steps counts as evidence. Before anything was learned, a positive loss rose far above where it began.
        Most of the progress that is lost slowly, while the rate grows in every step to ones never seen, is a warning.
        The share lost is that of the highest level. It looks at the first 2,048 logged steps, from the sixth on.

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
    spoils_weights: ClassVar[bool] = True

    lost_share: float = threshold(
        0.6,
        "share of the progress so far that is lost. Planted faults lose all of it in the end; own healthy curricula, "
        "late regularisation and growing attacks lost up to half",
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
    rising_rows: int = threshold(8, "the same while it is still rising")
    swift_share: float = threshold(
        0.25,
        "a level this share of the progress above the start, reached within 5 losses, need not last: all is undone",
    )
    swift_scales: float = threshold(6.0, "and this many scales of one loss above the best level")
    swift_rows: int = threshold(5, "and so many rows: a bump of four losses is gone before")
    signs_scales: float = threshold(
        1.25,
        "`noise_scales` where another signal changed in the same steps: the gradient norm by a factor of two, up or "
        "down, or the rate by more than twelve. Five points more of the own faults were found, with one more alarm on "
        "193 healthy runs",
    )
    signs_rows: int = threshold(5, "`stay_rows` there")
    signs_evidence_min: float = threshold(100.0, "`evidence_min` there")
    part_share: float = threshold(
        0.35,
        "share of the progress whose loss within 5 logged steps is a note: as much as a stretch of other data costs",
    )
    part_scales: float = threshold(8.0, "scales of one loss that such a part is above the best level")
    part_kept_rows: int = threshold(12, "logged steps for which half of it is still lost")
    frequent_min: int = threshold(4, "rises that came back make a warning if there are so many")
    frequent_rows: int = threshold(256, "within so many logged steps")
    policy_ratio: float = threshold(
        5.0,
        "a policy's loss may rise by up to this many times its progress, or its size at the start: each update has "
        "other data. PPO with 80 passes over each rollout rose by 1.4 of it",
    )
    critical_share: float = threshold(0.6, "share of the progress that is critical, if it is lost for `critical_rows`")
    critical_rows: int = threshold(64, "the horizon after which the course of a symptom is judged")

    grown_rows: int = threshold(32, "logged steps of a slow rise in which the rate grew all the while. Chosen")
    grown_ratio: float = threshold(1.1, "and what its last rate is of its first. Chosen")
    zero_share: float = threshold(1e-4, "of a rise: a first loss this near to zero is zero but for rounding. Chosen")
    zero_rise_nats: float = threshold(1.0, "and how far such a loss may rise as a note. Chosen")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        loss = window.applied("loss")
        if len(loss) <= LEVEL_ROWS or has_slid(loss.steps, stride=stride_of(loss.steps)):
            return ()
        loss = Series(loss.steps[:TRACK_STEPS_MAX], np.clip(loss.values[:TRACK_STEPS_MAX], -VALUE_MAX, VALUE_MAX))
        levels = levels_of(loss.values)
        signs = Corroboration(window, loss)
        rise = levels.now - levels.best
        progress = np.maximum(levels.start - levels.best, LEARNED_SCALES * levels.scale)
        lost = np.flatnonzero((rise >= self.lost_share * progress) & (rise >= LONG_SCALES * levels.scale))
        found: list[Symptom] = []
        for one, surprise, usual in _rises(levels, lost):
            alarm, surprised = self._alarm(levels, (one, surprise), usual, signs)
            if surprised:
                found.append(self._symptom(window, loss, levels, one, alarm))
        # The loss of a policy comes back with each rollout, however often.
        told = tuple(found) if script_rows(window, "policy-code") else self._frequent(found)
        parts = [
            one for one in self._parts(window, loss, levels, progress) if not any(_meet(one, other) for other in told)
        ]
        grown = (self._while_the_rate_grew(window, one) for one in (*told, *parts))
        return tuple(sorted(grown, key=lambda one: one.first_step))

    def _while_the_rate_grew(self, window: Window, one: Symptom) -> Symptom:
        """A slow loss of most of the progress is a warning if the rate grew in all these steps, to ones never seen."""
        span = one.first_step, one.last_step
        rates = rate_that_grew(window, *span, rows=self.grown_rows, ratio=self.grown_ratio)
        small = one.severity != "note" or one.numbers["lost_share"] < self.lost_share
        if small or rates is None or planned_change(window, *span):
            return one
        how = f"; the learning rate grew all the while, from {rates[0]:.3g} to {rates[1]:.3g}, more than ever before"
        return replace(one, severity="warning", message=one.message + how)

    def _parts(self, window: Window, loss: Series, levels: Levels, progress: FloatArray) -> Iterator[Symptom]:
        """Rises that undo a part of the progress at once and for some rows."""
        rise = levels.now - levels.best
        high = np.flatnonzero((rise >= self.part_share * progress) & (rise >= self.part_scales * levels.scale))
        for one, surprise, usual in _rises(levels, high):
            course = _Course(levels, one)
            bound = max(self.part_share * one.progress, self.part_scales * one.noise, self.habit_ratio * usual)
            above = (course.over >= bound) & course.jumped(LEVEL_ROWS)
            kept = _held(course.over >= 0.5 * bound, self.part_kept_rows) & np.logical_or.accumulate(above)
            if course.learned and kept.any() and float(surprise.max()) >= np.log(self.evidence_min):
                yield self._symptom(window, loss, levels, one, None)

    def _frequent(self, found: list[Symptom]) -> tuple[Symptom, ...]:
        """The rises; the last of many that came back is a warning."""
        raised = list(found)
        for at in range(self.frequent_min - 1, len(found)):
            first = found[at - self.frequent_min + 1]
            steps = found[at].last_step - first.first_step + 1
            if steps <= self.frequent_rows * found[at].numbers["stride"] and found[at].severity == "note":
                how = f"; the loss rose so and came back {self.frequent_min} times in {steps} steps"
                raised[at] = replace(found[at], severity="warning", message=found[at].message + how)
        return tuple(raised)

    def _alarm(
        self, levels: Levels, rising: tuple[Rise, FloatArray], usual: float, signs: Corroboration
    ) -> tuple[int | None, bool]:
        """The row at which a rise alarms, None where it does not; and whether it is more than noise explains."""
        rise, surprise = rising
        most = float(surprise.max())
        if not most >= np.log(min(self.evidence_min, self.signs_evidence_min)):
            return None, False  # so are most rises, and nothing else about them matters
        course = _Course(levels, rise)
        usual = max(usual * self.habit_ratio, self._return_to_zero(course))
        first: int | None = None
        surprised = bool(most >= np.log(self.evidence_min))
        if surprised:
            alarms = self._stays(course, usual) | self._stays_long(course, usual) | self._far(course)
            alarms |= self._swift(course, usual)
            first = _first(alarms & np.logical_or.accumulate(surprise >= np.log(self.evidence_min)))
        enough = np.logical_or.accumulate(surprise >= np.log(self.signs_evidence_min))
        with_signs = _first(self._with_signs(course, usual) & enough)
        if with_signs is not None and (first is None or with_signs < first) and signs.confirms(rise.onset):
            first = with_signs
        return None if first is None else rise.onset + first, surprised or first is not None

    def _bound(self, course: _Course, usual: float) -> float:
        """How far above the best level a rise has to be."""
        rise, floor = course.rise, -np.inf
        if not course.learned and course.start <= 0:
            return np.inf  # a return, or a likelihood: nothing says that a rise from its start is harm
        if not course.learned:
            high = min(self.unlearned_ratio * course.start, course.start + FAR_SCALES * rise.noise)
            floor = max(course.start + self.unlearned_scales * rise.noise, high) - rise.best
        return max(self.lost_share * rise.progress, self.noise_scales * rise.noise, usual, floor)

    def _return_to_zero(self, course: _Course) -> float:
        """How far above the best level zero lies, and the noise, for a loss that began there; 0 for any other.

        The loss of a policy gradient with centred advantages is about 0 at the start, falls while the policy gains, and
        is 0 again when nothing is left to gain: that it comes back to 0 shows no harm.
        """
        rise = course.rise
        near = abs(course.start) <= ZERO_SHARE * rise.progress + rise.noise
        below = course.learned and near and rise.best < 0
        return self.noise_scales * rise.noise - rise.best if below else 0.0

    def _stays(self, course: _Course, usual: float) -> NDArray[np.bool_]:
        """The level stands above the bound for some rows, of which the first came at once."""
        bound = self._bound(course, usual)
        over, rows = course.over, np.arange(len(course.over))
        above = over >= bound
        held = np.where(
            np.logical_or.accumulate(above),
            rows - np.maximum.accumulate(np.where(over >= NEAR_BOUND * bound, -1, rows)),
            0,
        )
        peak = np.maximum.accumulate(over)
        falls = (over < FALLING_SHARE * peak) & (over < FALLING_LOST * course.tall)
        stays = np.where(over >= course.rise.progress, self.stay_rows, self.part_rows)
        stays = np.where(course.rising, np.minimum(stays, self.rising_rows), stays)
        if course.learned:
            jumps = course.jumped(ABRUPT_ROWS)
        else:
            jumps = course.jumped(ABRUPT_ROWS_UNLEARNED, ABRUPT_SHARE_UNLEARNED)
        return (held >= np.where(falls, self.falling_rows, stays)) & np.logical_or.accumulate(above & jumps)

    def _stays_long(self, course: _Course, usual: float) -> NDArray[np.bool_]:
        """The same, less far out of the noise and for longer."""
        over, rise = course.over, course.rise
        alarms = np.zeros(len(over), np.bool_)
        if course.learned and len(over) > LONG_ROWS:
            lost = self.lost_share * rise.progress
            values = course.values[LONG_ROWS - REFERENCE_ROWS :]
            long = row_medians(sliding_window_view(values, REFERENCE_ROWS))[: len(over) - LONG_ROWS] - rise.best
            jumped = np.logical_or.accumulate(course.jumped(ABRUPT_ROWS) & (over >= lost))[LONG_ROWS:]
            alarms[LONG_ROWS:] = (long >= max(lost, LONG_SCALES * rise.noise, usual)) & jumped
        return alarms

    def _far(self, course: _Course) -> NDArray[np.bool_]:
        """So far out that few rows suffice."""
        yard = max(FAR_PROGRESS * course.tall, FAR_SCALES * course.rise.noise, FAR_STARTS * course.start)
        if not course.learned and course.start <= 0:
            return np.zeros(len(course.over), np.bool_)
        jumps = course.jumped(ABRUPT_ROWS if course.learned else ABRUPT_ROWS // 2)
        return (np.cumsum(course.over >= yard) >= FAR_ROWS) & np.logical_or.accumulate((course.over >= yard) & jumps)

    def _swift(self, course: _Course, usual: float) -> NDArray[np.bool_]:
        """In few rows it rose above where training began: what was learned is gone at once."""
        if not course.learned:
            return np.zeros(len(course.over), np.bool_)
        bound = max((1.0 + self.swift_share) * course.rise.progress, self.swift_scales * course.rise.noise, usual)
        above = course.over >= bound
        return _held(above, self.swift_rows) & np.logical_or.accumulate(course.jumped(LEVEL_ROWS) & above)

    def _with_signs(self, course: _Course, usual: float) -> NDArray[np.bool_]:
        bound = max(self.lost_share * course.rise.progress, self.signs_scales * course.rise.noise, usual)
        return _held(course.over >= bound, self.signs_rows)

    def _symptom(self, window: Window, loss: Series, levels: Levels, rise: Rise, alarm: int | None) -> Symptom:
        values, level = loss.values[rise.onset : rise.stop], levels.now[rise.onset : rise.stop]
        first_step, last_step = int(loss.steps[rise.onset]), int(loss.steps[rise.stop - 1])
        highest, ends = int(np.nanargmax(values)), float(values[-1])
        top, yard = int(np.argmax(level)), max(rise.progress, LEARNED_SCALES * rise.noise)
        late = (median(values[-REFERENCE_ROWS:]) - rise.best) / yard
        severity: Severity = "note" if alarm is None else "warning"
        if alarm is not None and len(values) >= self.critical_rows and late >= self.critical_share:
            severity = "critical"
        planned = self._planned(window, loss, levels, rise) if alarm is not None else None
        learned = rise.progress >= LEARNED_SCALES * rise.noise
        share, now = max(0.0, min((float(level[top]) - rise.best) / yard, 99.0)), float(level[-1])
        lost = f"{share:.0%}" if share <= 1 else "more than all"
        what = f", which loses {lost} of the progress so far" if learned else ", before anything was learned"
        after = f"; at step {last_step} it is {ends:.4g}" if highest < len(values) - 1 else ""
        if rise.stop < len(loss):
            after = f"; it was back at step {loss.steps[rise.stop]}"
        return Symptom(
            name="lost-progress",
            severity="note" if planned else severity,
            first_step=first_step,
            last_step=last_step,
            message=f"{f'from step {first_step} on ' if highest else ''}the loss rose from {rise.best:.4g} to "
            f"{values[highest]:.4g} at step {loss.steps[rise.onset + highest]}{what}{after}"
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
                "stride": float(stride_of(loss.steps)),
                **({} if alarm is None else {"alarm_step": float(loss.steps[alarm])}),
            },
        )

    def _planned(self, window: Window, loss: Series, levels: Levels, rise: Rise) -> str | None:
        """What explains a rise without a fault, None where nothing does."""
        top = float((levels.now[rise.onset : rise.stop] - rise.best).max())
        if script_rows(window, "policy-code") and top < self.policy_ratio * max(rise.progress, abs(levels.start)):
            return "the script trains a policy, whose loss is no measure of what it has learned"
        if abs(float(loss.values[0])) <= self.zero_share * top and top < self.zero_rise_nats:
            return "it began at zero, as the loss of a policy or of a difference to a reference does"
        first_step, last_step = int(loss.steps[rise.onset]), int(loss.steps[rise.stop - 1])
        planned = None if ran_away(window, first_step, last_step) else planned_change(window, first_step, last_step)
        factor = Corroboration(window, loss).rescaled(rise.onset, rise.stop)
        if planned or factor is None:
            return planned
        return f"the loss and its gradients grew at once by the same factor of about {factor:.2g}, as by a weight"


def _rises(levels: Levels, rows: IntArray) -> Iterator[tuple[Rise, FloatArray, float]]:
    """Each rise that one of ``rows`` is in, its evidence, and how high the largest one before it was."""
    row, usual = 0, 0.0
    while len(ahead := rows[np.searchsorted(rows, row) :]):
        one, surprise = rise_at(levels, int(ahead[0]))
        yield one, surprise, usual
        row, usual = one.stop, max(usual, float((levels.now[one.onset : one.stop] - one.best).max()))


def _meet(one: Symptom, other: Symptom) -> bool:
    return one.first_step <= other.last_step and other.first_step <= one.last_step


def _first(alarms: NDArray[np.bool_]) -> int | None:
    """The first row that alarms, None where none does."""
    row = int(np.argmax(alarms))
    return row if alarms[row] else None


def _held(above: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """Whether a row and the ``count`` before it are all ``above``."""
    rows = np.arange(len(above))
    return rows - np.maximum.accumulate(np.where(above, -1, rows)) >= count


class _Course:
    """One rise, row by row: ``over`` is its level above the best, ``tall`` the progress or what noise makes of it."""

    def __init__(self, levels: Levels, rise: Rise) -> None:
        self.rise, self.start = rise, levels.start
        self._now = levels.now
        self.values = levels.values[rise.onset : rise.stop]
        self.over = levels.now[rise.onset : rise.stop] - rise.best
        self.learned = rise.progress >= LEARNED_SCALES * rise.noise
        self.tall = max(rise.progress, LEARNED_SCALES * rise.noise)

    @property
    def rising(self) -> NDArray[np.bool_]:
        """Whether the highest level so far is one of the last few."""
        rows = np.arange(len(self.over))
        peak = np.maximum.accumulate(self.over)
        newest = np.maximum.accumulate(np.where(self.over >= peak, rows, 0))
        return (rows - newest <= LEVEL_ROWS) & (newest >= 2 * LEVEL_ROWS)

    def jumped(self, rows: int, share: float = ABRUPT_SHARE) -> NDArray[np.bool_]:
        """Whether a good part of the rise came within so many rows."""
        onset, stop = self.rise.onset, self.rise.stop
        earlier = np.maximum(np.arange(onset, stop) - rows, 0)
        return self._now[onset:stop] - self._now[earlier] >= share * self.over
