"""An optimizer that is made anew while its model trains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ShortLivedOptimizer(ScriptRule):
    """The optimizer is made anew for each step, or for each epoch, and loses its moments.

    Means:
        Adam, RMSprop and momentum average gradients over many steps. An optimizer that lives for one step has nothing
        to average: Adam then moves each weight by the learning rate, whatever its gradient, and momentum does nothing.
        That is a warning. One that lives for an epoch begins each epoch with large steps: a note. This is read in the
        source; loops over folds, clients, tasks or stages, and those that load or make a model, are left alone. It is a
        warning, too, if the eighth optimizer with the same settings begins with the same parameters, none of them made
        more than 200 steps, and nobody else wrote to the parameters between them.

    Causes:
        - the optimizer is made in the function that trains a batch, or an epoch
        - no fault: moments that are dropped on purpose when the data change

    Next:
        1. Make the optimizer once, before the loop, and pass it on.
    """

    optimizers_min: int = threshold(8, "optimizers one after the other: stages of a training are fewer. Chosen")
    steps_max: int = threshold(200, "steps of one: second moments average over a thousand. Chosen")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return (*self._of_steps(window), *self._of_epochs(window), *self._in_turn(window))

    def _in_turn(self, window: Window) -> Iterator[Symptom]:
        steps = {row.place: row.last for row in script_rows(window, "optimizer-steps")}
        for row in script_rows(window, "optimizers-in-turn"):
            most = steps.get(row.place, 0.0)
            if row.last >= self.optimizers_min and 0.0 < most <= self.steps_max:
                what = f"was made anew {row.last - 1:.0f} times for the same parameters, after at most {most:.0f} steps"
                said = f"{row.place} {what}: its moments begin at zero each time"
                yield self.warning(window, row, said, optimizers=row.last, steps=most)

    def _of_steps(self, window: Window) -> Iterator[Symptom]:
        for row in script_rows(window, "step-optimizer")[:1]:
            what = "makes an optimizer anew in each step: its moments never average over more than one gradient"
            yield self.warning(window, row, f"{row.place} {what}")

    def _of_epochs(self, window: Window) -> Iterator[Symptom]:
        for row in script_rows(window, "epoch-optimizer")[:1]:
            what = "makes an optimizer anew in each epoch: its moments begin at zero each time"
            yield self.note(window, row, f"{row.place} {what}")
