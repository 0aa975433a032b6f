"""Each pass over the data gives the samples in the same order, although they are shuffled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class RepeatedOrder(ScriptRule):
    """Each pass over the data gives the samples in the same shuffled order.

    Means:
        The samples of the first batches were compared from pass to pass. The sampler shuffles, and still drew the same
        samples in the same order: the batches are the same ones every time, and so is their order. It is a note if the
        sampler is one of another library or of the script, which may mean its order (buckets of equal length). Data in
        ascending order, evaluations, and several trainings in one process that begin with one seed are not judged.

    Causes:
        - `DistributedSampler` without `sampler.set_epoch(epoch)` at the begin of each pass
        - a seed that is set at the begin of each pass, or a generator that is made anew there

    Next:
        1. Call `set_epoch`, or seed once, before the first pass.
        2. Print the first indices of each pass.
    """

    passes_min: int = threshold(2, "passes in a row with the same order. Of 8 samples or more it is no chance")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        shuffles = {row.place: row.last for row in script_rows(window, "shuffles")}
        return tuple(
            Symptom(
                name="repeated-order",
                severity="warning" if shuffles.get(row.place) else "note",
                first_step=int(row.steps[0]),
                last_step=int(row.steps[-1]),
                message=f"{row.place} drew the same samples in the same order in {row.last:.0f} passes in a row",
                signals=("script.value",),
                numbers={"passes": row.last},
            )
            for row in script_rows(window, "same-order")[:1]
            if row.last >= self.passes_min
        )
