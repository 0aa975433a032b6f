"""A schedule counts in another unit than the script steps it, or gets a rate for a factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import ScriptRow, last_value, script_rows


@final
@dataclass(frozen=True)
class MistimedSchedule(ScriptRule):
    """A learning-rate schedule is stepped in another unit than its length is counted in, or given a rate as its factor.

    Means:
        A schedule knows no updates and no passes over the data: it counts its own steps. Nine things show that the
        unit is wrong. The source gives it the number of updates for its length (`epochs * len(loader)`), and it is
        stepped once for each pass: a warning after the second. The source gives it the number of passes for its
        length, and steps it in the loop over the batches: a warning. All milestones of a `MultiStepLR` come within the
        first pass over the data, and the training goes on for three more, or for four times as many updates where the
        passes are not known: a warning. `CosineAnnealingLR` is stepped beyond its `T_max`, where its rate rises again:
        a warning if that comes within the first pass over the data, else a note. A warm-up has hardly begun after the
        second pass, because the schedule was stepped once a pass: a warning; a note after the first pass, because a
        warm-up over several passes may be meant. A warm-up has reached an eighth of the rate at most after eight steps
        of its schedule, each of them after many updates: a warning. The schedule counts several steps for each update:
        a note, because its length may be counted in micro-batches. `ReduceLROnPlateau` is stepped after each batch
        with a patience of a few batches, and cuts the rate twice within the first pass: a warning. The function given
        to `LambdaLR` returns a learning rate: the schedule multiplies the optimizer's rate by it, so 1e-3 becomes 1e-6.
        It is a warning once the factor, which is about that rate, no longer rises. spent-schedule reports a schedule
        that decayed far too early.

    Causes:
        - `T_max=epochs` or `milestones` in epochs, and `scheduler.step()` after each batch
        - a warm-up in updates, and `scheduler.step()` after each pass
        - `ReduceLROnPlateau` stepped with the loss of each batch
        - `LambdaLR(optimizer, lambda step: rate_at(step))`: it asks for a factor, `rate_at(step) / rate`
        - `scheduler.step()` for each micro-batch of an accumulated update, for each process, or by script and trainer

    Next:
        1. Count the calls of `scheduler.step()` in one pass, and give the schedule its length in these calls.
        2. Step it once per update, after `optimizer.step()`.
        3. Meant to rise again: `CosineAnnealingWarmRestarts` or `CyclicLR` say so.
    """

    passes_max: float = threshold(1.0, "passes over the data in which a cosine must not turn")
    passes_min: float = threshold(2.0, "passes over the data after which a warm-up has to be under way")
    updates_min: int = threshold(200, "updates after which it has to be, where the passes are not known")

    noted_steps: int = threshold(100, "the same for a note")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = [
            *_once_a_pass(window),
            *(tuple(_in_source(window)) or self._turned(window)),  # one mistake: the second is what comes of the first
            *_slow(window),
            *_cut(window),
            *self._warms(window),
            *_counted(window),
            *_of_batches(window),
            *_multiplied(window),
        ]
        return tuple(sorted(found, key=lambda one: one.first_step))

    def _turned(self, window: Window) -> Iterator[Symptom]:
        for row in script_rows(window, "cosine-turned")[:1]:
            passes = _beside(window, "turned-after", row)
            early = 0.0 < passes < self.passes_max
            when = f", after {passes:.2f} passes over the data" if early else ""
            yield _symptom(
                row,
                "warning" if early else "note",
                f"{row.place} was stepped beyond its T_max of {row.last:.0f}{when}: the learning rate rises again",
                t_max=row.last,
                passes=passes,
            )

    def _warms(self, window: Window) -> Iterator[Symptom]:
        for row in script_rows(window, "warm-up-share")[:1]:
            counted, passes = _beside(window, "steps-counted", row), _beside(window, "passes-made", row)
            updates = int(row.steps[-1]) - 1
            sure = passes >= self.passes_min or (passes == 0.0 and updates >= self.updates_min and counted > 1)
            begun = passes == 0.0 and updates >= self.noted_steps and counted > 1
            if not sure and passes < 1.0 and not begun:
                continue
            yield _symptom(
                row,
                "warning" if sure else "note",
                f"{row.place} counted {counted:.0f} steps in {updates} updates: its warm-up has reached "
                f"{100.0 * row.last:.2g} % of the rate",
                counted=counted,
                updates=float(updates),
                passes=passes,
            )


def _in_source(window: Window) -> Iterator[Symptom]:
    for row in script_rows(window, "epochs-per-batch")[:1]:
        yield _symptom(
            row,
            "warning",
            f"{row.place} makes a schedule as long as the number of epochs, and the script steps it for each batch",
        )


def _once_a_pass(window: Window) -> Iterator[Symptom]:
    for row in script_rows(window, "updates-per-epoch")[:1]:
        counted = script_rows(window, "steps-of-passes")[:1]
        for one in counted:
            steps, updates = f"{one.last:.0f} step{'s' if one.last > 1 else ''}", int(one.steps[-1]) - 1
            yield _symptom(
                one,
                "warning",
                f"{row.place} makes a schedule of the epochs times the batches, and the script steps it once per "
                f"epoch: it counted {steps} in {updates} updates",
                counted=one.last,
            )


def _slow(window: Window) -> Iterator[Symptom]:
    for row in script_rows(window, "slow-warm-up")[:1]:
        counted, updates = _beside(window, "slow-steps", row), int(row.steps[-1]) - 1
        if not script_rows(window, "updates-per-epoch") and not script_rows(window, "warm-up-share"):
            yield _symptom(
                row,
                "warning",
                f"{row.place} counted {counted:.0f} steps in {updates} updates, and its warm-up has reached "
                f"{100.0 * row.last:.2g} % of the rate: is its length counted in updates?",
                counted=counted,
                updates=float(updates),
            )


def _cut(window: Window) -> Iterator[Symptom]:
    for row in script_rows(window, "last-milestone")[:1]:
        passes, updates = _beside(window, "milestones-after", row), _beside(window, "milestones-updates", row)
        when = f"after {passes:.2f} passes over the data" if passes else f"at update {row.last:.0f} of {updates:.0f}"
        yield _symptom(
            row,
            "warning",
            f"{row.place} passed its last milestone, {row.last:.0f}, {when}, and the training goes on at the lowest "
            "rate: milestones in epochs, and a step for each batch?",
            milestone=row.last,
            passes=passes,
        )


def _of_batches(window: Window) -> Iterator[Symptom]:
    for row in script_rows(window, "plateau-per-batch")[:1]:
        patience = _beside(window, "plateau-patience", row)
        yield _symptom(
            row,
            "warning",
            f"{row.place} is stepped after each batch and has cut the rate {row.last:.0f} times within the first pass "
            f"over the data: its patience of {patience:.0f} is counted in batches, whose losses scatter",
            cuts=row.last,
            patience=patience,
        )


def _multiplied(window: Window) -> Iterator[Symptom]:
    for row in script_rows(window, "rate-as-factor")[:1]:
        rate = _beside(window, "rate-of-optimizer", row)
        yield _symptom(
            row,
            "warning",
            f"the function given to {row.place} returns the learning rate in place of a factor: the schedule "
            f"multiplies the optimizer's rate of {rate:.3g} by it, and the rate never exceeds {row.last:.3g}",
            rate=rate,
            highest=row.last,
        )


def _counted(window: Window) -> Iterator[Symptom]:
    for row in script_rows(window, "steps-an-update")[:1]:
        yield _symptom(row, "note", f"{row.place} counts {row.last:.0f} steps for each update", counted=row.last)


def _beside(window: Window, measure: str, row: ScriptRow) -> float:
    """The newest value of ``measure`` at the place of ``row``; 0 if there is none."""
    return last_value(window, measure, row.place) or 0.0


def _symptom(row: ScriptRow, severity: Severity, message: str, **numbers: float) -> Symptom:
    step = int(row.steps[0])
    return Symptom(
        name="mistimed-schedule",
        severity=severity,
        first_step=step,
        last_step=int(row.steps[-1]),
        message=message,
        signals=("script.value",),
        numbers=numbers,
    )
