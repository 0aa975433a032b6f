"""The model is given the same batch again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

OVER_STEPS = 32
"""Steps after which a row of equal batches that was not seen again is over: two looks."""

AFTER_OTHERS = "after steps with other batches"
WHENCE = {
    "loader": "of a data loader that has more",
    "kept": "taken once from a data loader that has more, and kept",
}


@final
@dataclass(frozen=True)
class RepeatedBatch(ScriptRule):
    """Step after step has the same inputs: the model learns one batch by heart.

    Means:
        The inputs of the model were compared from step to step by a sample of their values. It is a warning if they
        come from a data loader that has more rows than this batch, and is asked in each step, or if the steps before
        had other inputs, and none of them for nearly as long: the data no longer advance. It is a note if the
        script asked it once and keeps the batch, as a test of overfitting does, or makes equal values anew in each
        step, which may be a seed that is set inside the loop. A script that gives the very same tensors, or all rows
        that there are, trains on its whole data: nothing is said.

    Causes:
        - `next(iter(loader))` inside the loop, or before it, instead of a loop over the loader
        - `manual_seed` or a new generator of the same seed before each batch
        - a data set whose `__getitem__` ignores its index, or workers that all have one seed
        - an iterator that ended, and whose last batch is kept (`except StopIteration: pass`)
        - a cache, a buffer or an index that is no longer refreshed
        - a test of overfitting that was left in

    Next:
        1. Print a few values of the batch, or its indices, in three steps in a row.
        2. Loop over the loader: `for batch in loader`; set the seed once, before the loop.
    """

    repeated_steps: int = threshold(
        8, "steps in a row with equal inputs. Several updates on one batch (policies, inner loops) are usually fewer"
    )
    stuck_steps: int = threshold(
        16, "the same after steps with other inputs: a script may repeat a batch for some steps by intent"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        if script_rows(window, "equal-inputs"):  # not the batch comes again, but each of its rows is the same
            return ()
        found = list(self._stuck(window))
        for row in () if found else script_rows(window, "same-batch"):
            beyond = row.steps[row.values >= self.repeated_steps]
            if row.place == "tensors" or not len(beyond) or row.steps[-1] != beyond[-1]:
                continue
            count = int(row.last)
            whence = WHENCE.get(row.place, "made anew in each step")
            found.append(
                Symptom(
                    name="repeated-batch",
                    severity="warning" if row.place == "loader" else "note",
                    first_step=int(row.steps[-1]) - count + 1,
                    last_step=int(window.steps[-1]),
                    message=f"the same batch at {count} steps in a row, {whence}",
                    signals=("script.value",),
                    numbers={"steps": float(count)},
                )
            )
        return tuple(found[:1])

    def _stuck(self, window: Window) -> Iterator[Symptom]:
        for row in script_rows(window, "stuck-batch"):
            count = int(row.last)
            if count < self.stuck_steps:
                continue
            is_over = int(window.steps[-1]) - int(row.steps[-1]) > OVER_STEPS
            yield Symptom(
                name="repeated-batch",
                severity="note" if is_over or script_rows(window, "policy-code") else "warning",
                first_step=int(row.steps[-1]) - count + 1,
                last_step=int(window.steps[-1]),
                message=f"the same batch at {count} steps in a row, {AFTER_OTHERS}",
                signals=("script.value",),
                numbers={"steps": float(count), "stuck": 1.0},
            )
