"""A resume that loaded the schedule and not the optimizer, the other way round, or moments that are not its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from steadytrain.core.model import Series, Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.level_before import LevelBefore, level_before
from steadytrain.statistics.medians import median
from steadytrain.statistics.reference import MAD_TO_SIGMA
from steadytrain.statistics.script_rows import ScriptRow, script_rows

FIRST_ROWS, BLOCK_ROWS = 3, 16
"""Losses of which a median is taken: the first ones of a training, and those of a stretch of it."""

LEFT_OUT = ("left-out-statistics", "left-out-state")
"""Measures of what a checkpoint leaves out beside weights and optimizer."""

SURGE_ROWS = 8
"""Losses after the first one: moments that begin at zero do their harm at once."""

SPREAD_SHARE_MIN = 0.02
"""Of the level: a loss that hardly varies is compared by this."""


@final
@dataclass(frozen=True)
class IncompleteResume(ScriptRule):
    """The schedule goes on in the middle, and the optimizer begins without moments, or the other way round.

    Means:
        Before the first update the learning-rate schedule stood at a later step, and the optimizer had no moments: they
        begin at zero, at the full rate and without the warm-up that the schedule gave them once. The loss often rises
        for some hundred steps. Moments that have counted many updates beside a schedule that begins are a note: a
        second phase may be meant. It is a warning if the checkpoint of the weights holds a schedule with the same
        settings, and the rate leaves the loaded one by a factor of 4. Moments in that checkpoint that no optimizer was
        given are a note: fine-tuning begins so. They are a warning if the training before ran in the same process, its
        loss goes on, and the next 32 losses are higher (by less, if a schedule of the same settings begins anew, too),
        or the next 8 by half. Moments beside a schedule that begins are one, too, if the loss rises by a fifth in 128
        steps; and so are moments that go on while the first losses are twice what they were at the end of the training
        before. A note, too, is a checkpoint that says how many steps or epochs it has behind it and holds no optimizer
        state, and a first rate of at least twice the loaded one. It is a warning, too, if the optimizer was given
        moments of another shape than their parameter, if it names its parameters in another order than the checkpoint
        does, if the second moments of two parameters of one shape fit the gradients of the other one in the first 8
        updates, or if second moments are 0 beside first moments that are not: squares below 6e-8 are 0 in float16. Adam
        divides by their root, so the first updates are as large as epsilon lets them be.

    Causes:
        - a checkpoint that holds the model and the schedule only
        - `optimizer.load_state_dict` is missing, or is called on an optimizer that is made anew afterwards
        - a schedule that is made with `last_epoch`, or stepped forward, in place of a whole resume
        - groups or parameters that are given to the optimizer in another order than before (a set, a sorted list)
        - a checkpoint that keeps the state of the optimizer in float16

    Next:
        1. Save and load the state of the optimizer, the schedule, the scaler and the random generators together.
        2. Run `steadytrain preflight`: its check resume-equivalence does it both ways.
    """

    is_act: ClassVar[bool] = True

    steps_min: int = threshold(
        2, "steps that one of them has counted: a schedule may be stepped once before the first update"
    )

    rate_ratio_max: float = threshold(
        4.0, "ratio of the rate to the loaded one, either way, that no schedule makes in its first steps by chance"
    )

    raised_ratio: float = threshold(2.0, "the same for the rate of the first update alone, upwards, for a note. Chosen")

    emptied_min: float = threshold(
        0.01, "share of the first moments other than 0 whose second moment is 0. It is 0 in a state that was kept whole"
    )

    after_steps: int = threshold(32, "steps after a resume whose loss is compared with the 32 before it")
    same_scales: float = threshold(
        3.0, "robust standard deviations that the first loss may be above those before: the same data go on"
    )
    risen_scales: float = threshold(
        1.0, "and those that the median of the others must be above: that of 32 losses varies by a fifth of one"
    )
    risen_share: float = threshold(0.15, "and the share of the level. Chosen")
    both_share: float = threshold(
        0.05, "the same where a schedule of the checkpoint's settings begins anew, too. Chosen"
    )

    surge_scales: float = threshold(10.0, "robust standard deviations that the median of the next 8 is above. Chosen")
    surge_share: float = threshold(0.5, "and the share of the level: harm, though it passes within 32 steps. Chosen")

    elsewhere_ratio: float = threshold(
        2.0, "first losses of a training that goes on, over the level before: other weights, ids or data. Chosen"
    )
    elsewhere_scales: float = threshold(10.0, "and the robust standard deviations that they are above it. Chosen")
    rewarmed_steps: int = threshold(128, "steps in which the loss rises again where a schedule begins anew")
    rewarmed_share: float = threshold(0.2, "and the share of its first level that it rises by. Chosen")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        begun = self._elsewhere(window) or self._begun(window) or self._left(window) or self._climbed(window)
        begun = begun or self._jumped(window)
        found = [*begun, *_misplaced(window), *self._emptied(window)]
        return tuple(sorted(found, key=lambda one: one.first_step))

    def _left(self, window: Window) -> tuple[Symptom, ...]:
        """Moments that lie in the checkpoint of the weights, or that were never saved with them: a warning if the loss
        rises from where it stood in the training before."""
        found = tuple(_moments_left(window))
        risen = self._risen(window) if found else ""
        return tuple(
            replace(one, severity="warning", message=f"{one.message}; {risen}") if risen else one for one in found
        )

    def _risen(self, window: Window) -> str:
        """How far the loss rose after a resume in the process of the training before; "" if it did not, or if it began
        at another level, as with other data."""
        before, losses = level_before(window), window.applied("loss").values[: self.after_steps]
        if before is None or len(losses) < self.after_steps:
            return ""
        after = median(losses[1:])
        goes_on = self._goes_on(before, losses[0])
        left = next(iter(script_rows(window, "schedule-left")), None)
        share = self.risen_share if left is None else self.both_share
        anew = f"{left.place} begins anew, too, which stood at {left.last:.0f}; " if left is not None else ""
        surge = median(losses[1 : 1 + SURGE_ROWS])
        if goes_on and before.is_passed(surge, scales=self.surge_scales, share=self.surge_share):
            return anew + before.sentence(surge, SURGE_ROWS)
        if not goes_on or not before.is_passed(after, scales=self.risen_scales, share=share):
            return ""
        return anew + before.sentence(after, len(losses))

    def _goes_on(self, before: LevelBefore, first: float) -> bool:
        """Whether the ``first`` loss is that of the data and weights of before."""
        return not before.is_passed(first, scales=self.same_scales, share=self.same_scales * SPREAD_SHARE_MIN)

    def _elsewhere(self, window: Window) -> tuple[Symptom, ...]:
        """The optimizer has its moments of before, but the first losses are far above those of before."""
        before, loss = level_before(window), window.applied("loss")
        behind = [row.last for row in script_rows(window, "updates-before")]
        named_otherwise = any(script_rows(window, measure) for measure in LEFT_OUT)  # unsaved-state
        if before is None or before.level <= 0 or not behind or named_otherwise:
            return ()
        for row in script_rows(window, "moments-given"):
            # From an earlier checkpoint the loss begins higher, and rightly.
            of_its_end = row.last >= self.steps_min and abs(row.last - behind[0]) <= self.after_steps
            if not of_its_end or not _begins_with(loss, row, FIRST_ROWS):
                continue
            first = median(loss.values[:FIRST_ROWS])
            if before.is_passed(first, scales=self.elsewhere_scales, share=self.elsewhere_ratio - 1.0):
                said = (
                    f"{row.place} went on with moments of {row.last:.0f} updates, and the first losses are {first:.4g} "
                    f"where the training before stood at {before.level:.4g}: the weights are not its own, or the ids "
                    "or the data mean something else now"
                )
                return (_symptom("warning", int(row.steps[0]), said, {"loss": first, "level": before.level}),)
        return ()

    def _rewarmed(self, window: Window, schedule: ScriptRow) -> str:
        """How far the loss rose again after a schedule began anew; "" if it did not."""
        loss = window.applied("loss")
        losses = loss.values[: self.rewarmed_steps]
        blocks = [median(losses[at : at + BLOCK_ROWS]) for at in range(0, len(losses) - BLOCK_ROWS + 1, BLOCK_ROWS)]
        if len(blocks) < 2 or blocks[0] <= 0 or not _begins_with(loss, schedule, BLOCK_ROWS):
            return ""
        spread = MAD_TO_SIGMA * median(np.abs(losses[:BLOCK_ROWS] - blocks[0]))
        top = max(blocks)
        risen = top > blocks[0] + max(3.0 * spread, self.rewarmed_share * blocks[0])
        return f", and the loss rose from {blocks[0]:.4g} to {top:.4g}" if risen else ""

    def _begun(self, window: Window) -> tuple[Symptom, ...]:
        schedules, moments = script_rows(window, "schedule-at"), script_rows(window, "moments-at")
        if not schedules or not moments:
            return ()
        schedule, held = schedules[0], moments[0]
        at, counted = float(schedule.values[0]), float(held.values[0])
        lost = at >= self.steps_min and counted == 0.0
        if not lost and not (counted >= self.steps_min and at == 0.0):
            return ()
        restarted = "" if lost else self._restarted(window, schedule.place) or self._rewarmed(window, schedule)
        said = (
            f"{schedule.place} stood at step {at:.0f} and {held.place} had no moments: they begin at zero"
            if lost
            else f"{held.place} had moments of {counted:.0f} updates and {schedule.place} begins at 0{restarted}"
        )
        severity: Severity = "warning" if lost or restarted else "note"
        numbers = {"schedule": at, "moments": counted}
        return (_symptom(severity, int(schedule.steps[0]), f"before the first update {said}", numbers),)

    def _restarted(self, window: Window, place: str) -> str:
        """How the rate shows that a schedule was left in the checkpoint; empty where it does not."""
        left = [row for row in script_rows(window, "schedule-left") if row.place == place]
        for row in script_rows(window, "rate-over-loaded"):
            ratios = row.values[row.values > 0.0]
            far = ratios[(ratios >= self.rate_ratio_max) | (ratios <= 1.0 / self.rate_ratio_max)]
            if left and len(far):
                stood = f"the same schedule stood at {left[0].last:.0f} in the checkpoint"
                return f"; {stood}, and the rate becomes {float(far[-1]):.2g} times the loaded one"
        return ""

    def _climbed(self, window: Window) -> tuple[Symptom, ...]:
        """A schedule of the script's own that begins with its warm-up again, on the data of before."""
        before, loss, rates = level_before(window), window.applied("loss"), window.applied("learning_rate")
        if before is None:
            return ()
        for row in script_rows(window, "rate-over-loaded"):
            begins = _begins_with(loss, row, FIRST_ROWS) and len(rates) >= FIRST_ROWS
            if not begins or not 0.0 < row.values[0] <= 1.0 / self.raised_ratio:
                continue
            loaded = float(rates.values[0]) / float(row.values[0])
            highest = float(rates.values[: self.rewarmed_steps].max())
            goes_on, risen = self._goes_on(before, median(loss.values[:FIRST_ROWS])), self._rewarmed(window, row)
            if goes_on and risen and highest >= self.rate_ratio_max * loaded:
                said = (
                    f"{row.place} was loaded with a rate of {loaded:.3g}; it begins anew at {rates.values[0]:.3g} "
                    f"and climbs to {highest:.3g}: the count of its schedule was not in the checkpoint{risen}"
                )
                return (_symptom("warning", int(row.steps[0]), said, {"loaded": loaded, "highest": highest}),)
        return ()

    def _jumped(self, window: Window) -> tuple[Symptom, ...]:
        """A rate that the script raised right after it had loaded another one."""
        for row in script_rows(window, "rate-over-loaded"):
            ratio = float(row.values[0])
            if ratio >= self.raised_ratio:
                said = f"the first rate is {ratio:.2g} times the one that was loaded with the state of {row.place}"
                return (_symptom("note", int(row.steps[0]), said, {"ratio": ratio}),)
        return ()

    def _emptied(self, window: Window) -> Iterator[Symptom]:
        for row in script_rows(window, "moments-emptied"):
            share = float(np.nanmax(row.values))
            if share >= self.emptied_min:
                step = int(row.steps[0])
                said = (
                    f"before step {step} {share:.0%} of the second moments that {row.place} was given were 0 beside a "
                    "first moment that is not 0: they were too small for the format that kept them"
                )
                yield _symptom("warning", step, said, {"share": share})


def _begins_with(loss: Series, row: ScriptRow, rows: int) -> bool:
    """Whether the window, which slides, still has the first ``rows`` losses after a resume."""
    return len(loss) >= rows and bool(loss.steps[0] <= row.steps[0] + 1)


def _moments_left(window: Window) -> Iterator[Symptom]:
    for row in script_rows(window, "moments-left")[:1]:
        said = (
            f"the checkpoint of the weights holds moments of {row.last:.0f} parameters, and {row.place} was given none"
        )
        yield _symptom("note", int(row.steps[0]), said, {"parameters": row.last})
    for row in script_rows(window, "moments-unsaved")[:1]:
        name, _, unit = row.place.partition(" ")
        stood = f"the checkpoint of the weights stands at {unit} {row.last:.0f} and holds no state of an optimizer"
        yield _symptom("note", int(row.steps[0]), f"{stood}: {name} begins without moments", {"position": row.last})


def _misplaced(window: Window) -> Iterator[Symptom]:
    """Loads that put moments to parameters that they do not belong to."""
    for measure, what in (
        ("moments-reshaped", "moments of another shape than their parameter"),
        ("moments-swapped", "moments of another parameter of the same model"),
    ):
        for row in script_rows(window, measure):
            at = row.values > 0.0
            if at.any():
                step, count = int(row.steps[at][0]), float(row.values[at][0])
                yield _symptom(
                    "warning",
                    step,
                    f"before step {step} {row.place} was given {count:.0f} {what}: the order of the parameters has "
                    "changed",
                    {"moments": count},
                )

    for row in script_rows(window, "groups-exchanged"):
        if row.last > 0.0:
            yield _symptom(
                "warning",
                int(row.steps[-1]),
                f"before step {row.steps[-1]} {row.place} was given the settings and moments of other groups: "
                f"{row.last:.0f} of its groups have the learning rate that another one had. A state is loaded by "
                "position, and the order of the groups has changed",
                {"groups": row.last},
            )
    for row in script_rows(window, "moments-misplaced"):
        what = "second moments that fit the gradients of another parameter of their shape"
        said = f"{row.last:.0f} parameters of {row.place} have {what}: the order of the parameters has changed"
        yield _symptom("warning", 1 + max(0, int(row.steps[0]) - 8), said, {"moments": row.last})


def _symptom(severity: Severity, step: int, message: str, numbers: dict[str, float]) -> Symptom:
    return Symptom(
        name="incomplete-resume",
        severity=severity,
        first_step=step,
        last_step=step,
        message=message,
        signals=("script.value",),
        numbers=numbers,
    )
