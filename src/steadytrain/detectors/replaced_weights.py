"""The script loads other weights into the model in the middle of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class ReplacedWeights(ScriptRule):
    """Between two updates the script loaded other weights into the model, and its optimizer kept its state.

    Means:
        The update after it began with weights that the one before had not left, and with moments that belong to those.
        What was learned since the loaded weights were made is lost. It is a note, because it may be meant: the best
        weights are restored, an average is trained on, workers are merged. Weights that are put back before the next
        update, that come with the optimizer's state, or that are loaded before the first update are not reported.

    Causes:
        - averaged weights (EMA, SWA) that are copied in for an evaluation or a sample, and never taken out again
        - a checkpoint that is loaded to be evaluated, into the model that trains
        - the best weights restored without the state of the optimizer

    Next:
        1. Keep `copy.deepcopy(model.state_dict())` before it, and load that afterwards, or evaluate a copy of the
           model.
        2. If it is meant, load the optimizer's state with the weights, or make a new optimizer.
    """

    is_act: ClassVar[bool] = True

    change_min: float = threshold(
        0.001, "norm of the change over the norm of the weights. A round trip through 16 bits changes less"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = []
        for row in script_rows(window, "weights-replaced"):
            at = row.values >= self.change_min
            steps, changes = row.steps[at], row.values[at]
            if len(steps):
                often = f", and in {len(steps) - 1} later steps" if len(steps) > 1 else ""
                found.append(
                    Symptom(
                        name="replaced-weights",
                        severity="note",
                        first_step=int(steps[0]),
                        last_step=int(steps[-1]),
                        message=f"before step {steps[0]}{often}, {row.place} loaded weights that differ by "
                        f"{float(changes[0]):.2g} of their norm from those that the update before had left, and the "
                        "optimizer kept its state",
                        signals=("script.value",),
                        numbers={"change": float(changes.max()), "times": float(len(steps))},
                    )
                )
        return tuple(sorted(found, key=lambda one: one.first_step))
