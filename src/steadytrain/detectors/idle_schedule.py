"""A learning-rate schedule exists and is never stepped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class IdleSchedule(ScriptRule):
    """A schedule was made for the optimizer, and the rate never follows it.

    Means:
        A schedule exists at the first update. The data loader has given its whole data set several times, and the
        schedule has not counted one step: the rate is where it was. A schedule is stepped once per update or once per
        pass over the data. The second pass alone is a note, because a schedule may be stepped every other pass. Loops
        without a data loader whose length is known are not judged. A schedule that is stepped and belongs to an
        optimizer that makes no step, while another one trains the same parameters, is a warning.

    Causes:
        - `scheduler.step()` is missing, or stands in a branch that is not reached
        - the optimizer was made anew, and the schedule still belongs to the one before
        - `scheduler.step` without parentheses

    Next:
        1. Call `scheduler.step()` after `optimizer.step()`, once per update or once per pass, as it was planned.
        2. Print `scheduler.get_last_lr()` at the end of each pass.
    """

    passes_min: float = threshold(4.0, "passes over the data set without a step of the schedule, for a warning")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return (*self._never_stepped(window), *self._stray(window))

    def _never_stepped(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            Symptom(
                name="idle-schedule",
                severity="warning" if row.last >= self.passes_min else "note",
                first_step=int(row.steps[0]),
                last_step=int(window.steps[-1]),
                message=f"{row.place} was never stepped: {row.last:.0f} passes over the data, and the rate is where it "
                "began",
                signals=("script.value",),
                numbers={"passes": row.last},
            )
            for row in script_rows(window, "idle-schedule")[:1]
        )

    def _stray(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            self.warning(
                window,
                row,
                f"{row.place} steps an optimizer that makes no step: it has moved a rate that nothing uses, and the "
                "optimizer that trains has no schedule",
                counted=row.last,
            )
            for row in script_rows(window, "stray-schedule")[:1]
        )
