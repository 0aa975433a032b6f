"""Each pass over the data gives the samples in the same order, although they are shuffled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Severity, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import ScriptRow, script_rows


@final
@dataclass(frozen=True)
class RepeatedOrder(ScriptRule):
    """Each pass over the data gives the samples in the same shuffled order.

    Means:
        The samples of the first batches were compared from pass to pass. The sampler shuffles, and still drew the same
        samples in the same order: the batches are the same ones every time, and so is their order. It is a note if the
        sampler is one of another library or of the script, which may mean its order (buckets of equal length). Data in
        ascending order, evaluations, and several trainings in one process that begin with one seed are not judged. It
        is a warning, too, if a shuffling loader was read once while the model trained, and its batches come again in
        their order without it.

    Causes:
        - `DistributedSampler` without `sampler.set_epoch(epoch)` at the begin of each pass
        - a seed that is set at the begin of each pass, or a generator that is made anew there
        - `itertools.cycle(loader)`, which keeps the batches of the first pass and repeats them

    Next:
        1. Call `set_epoch`, or seed once, before the first pass.
        2. Loop over the loader in each pass, in place of `itertools.cycle`.
        3. Print the first indices of each pass.
    """

    passes_min: int = threshold(2, "passes in a row with the same order. Of 8 samples or more it is no chance")

    cycled_steps: int = threshold(4, "steps in a row with the batches of the first steps, and without the loader")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        shuffles = {row.place: row.last for row in script_rows(window, "shuffles")}
        drawn = [
            _symptom(
                row,
                "warning" if shuffles.get(row.place) else "note",
                f"{row.place} drew the same samples in the same order in {row.last:.0f} passes in a row",
            )
            for row in script_rows(window, "same-order")[:1]
            if row.last >= self.passes_min
        ]
        cycled = [
            _symptom(
                row, "warning", f"the batches that {row.place} drew first come again in their order, without the loader"
            )
            for row in script_rows(window, "cycled-batches")[:1]
            if row.last >= self.cycled_steps
        ]
        return tuple(sorted((*drawn, *cycled), key=lambda one: one.first_step))


def _symptom(row: ScriptRow, severity: Severity, message: str) -> Symptom:
    return Symptom(
        name="repeated-order",
        severity=severity,
        first_step=int(row.steps[0]),
        last_step=int(row.steps[-1]),
        message=message,
        signals=("script.value",),
        numbers={"times": row.last},
    )
