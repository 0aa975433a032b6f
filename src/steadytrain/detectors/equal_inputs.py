"""All rows of each batch look the same to the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.benign_changes import has_moving_targets
from steadytrain.statistics.script_rows import last_value, script_rows


@final
@dataclass(frozen=True)
class EqualInputs(ScriptRule):
    """Every row of a batch has the same input, while the targets differ: there is nothing to learn from.

    Means:
        The tensors of the model's call were compared row by row in the first looks. All rows are equal in each of them,
        often one constant everywhere. The model can only learn how frequent each target is: its loss stops at what a
        guess costs.

    Causes:
        - a cast to integers after scaling, which makes all pixels 0; a division by integers
        - a vocabulary or a lookup table that matches nothing, so that every item is the unknown one
        - a normalisation over the wrong axis, which subtracts each value from itself
        - a `__getitem__` that ignores its index, a window outside of the signal, a mask that hides everything

    Next:
        1. Print `batch.min()`, `batch.max()` and `(batch == batch[:1]).all()` right before the model.
        2. Go back through the pipeline until the rows differ: the step after that is at fault.
        3. Assert in the data set that two samples differ.
    """

    looks_min: int = threshold(3, "looks that find it")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        if has_moving_targets(window):
            return ()
        for row in script_rows(window, "equal-inputs"):
            if len(row.values) < self.looks_min:
                continue
            constant = last_value(window, "constant-inputs", row.place)
            value = f": every number is {constant:.4g}" if constant is not None else ""
            return (
                self.warning(
                    window,
                    row,
                    f"the model gets the same input for all {row.last:.0f} rows of a batch{value}, while the targets "
                    f"of the loss of {row.place} differ",
                    rows=float(row.last),
                ),
            )
        return ()
