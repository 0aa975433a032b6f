"""The script loads other weights into the model in the middle of a training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Series, Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.medians import median
from steadytrain.statistics.script_rows import script_rows

LOSSES = 4
"""Losses whose median is compared."""


@final
@dataclass(frozen=True)
class ReplacedWeights(ScriptRule):
    """Between two updates the script loaded other weights into the model, and its optimizer kept its state.

    Means:
        The update after it began with weights that the one before had not left, and with moments that belong to those.
        What was learned since the loaded weights were made is lost. It is a note, because it may be meant: the best
        weights are restored, an average is trained on, workers are merged. Weights that are put back before the next
        update, that come with the optimizer's state, or that are loaded before the first update are not reported.

        After an evaluation it is also seen without a load: the next step trains the weights that were evaluated, many
        updates away from those before. It is a warning if the loss rises there by a good part of the progress.

    Causes:
        - averaged weights (EMA, SWA) that are copied in for an evaluation or a sample, and never taken out again
        - a checkpoint that is loaded to be evaluated, into the model that trains
        - a backup of the weights that is no copy (`backup = p.data`), so that putting it back changes nothing
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

    lost_min: float = threshold(
        0.25,
        "share of the progress that a rise of the loss takes, from which weights that an evaluation left are a "
        "warning. Chosen",
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        found = list(self._left_in(window))
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

    def _left_in(self, window: Window) -> Iterator[Symptom]:
        for row in script_rows(window, "left-in"):
            lost = max(_lost(window.applied("loss"), int(step)) for step in row.steps)
            rises = f", and the loss rises by {lost:.0%} of the progress so far" if lost >= self.lost_min else ""
            times = f" ({len(row.steps)} times)" if len(row.steps) > 1 else ""
            yield Symptom(
                name="replaced-weights",
                severity="warning" if rises else "note",
                first_step=int(row.steps[0]),
                last_step=int(row.steps[-1]),
                message=f"from step {row.steps[0]} on, {row.place} trains the weights that were evaluated before it"
                f"{times}, {float(row.values[0]):.3g} updates away from those that it had trained{rises}: what was put "
                "in for the evaluation (an average, EMA) was not taken out again, as with a backup that is no copy",
                signals=("script.value",),
                numbers={"updates": float(row.values.max()), "times": float(len(row.steps)), "lost": lost},
            )


def _lost(loss: Series, step: int) -> float:
    """The share of the progress before ``step`` by which the losses after it lie above those before; 0 if unknown."""
    before, after = loss.values[loss.steps < step], loss.values[loss.steps >= step][:LOSSES]
    if len(before) < 4 * LOSSES or not len(after):
        return 0.0
    start, level = median(before[:LOSSES]), median(before[-2 * LOSSES :])
    return max(0.0, (median(after) - level) / (start - level)) if start > level else 0.0
