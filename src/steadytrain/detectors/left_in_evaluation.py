"""The model trains in evaluation mode."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

BY_MODULES = "dropout is off and normalisation does not follow the batches"
BY_SPECTRA = (
    "its spectral norm no longer runs the power iteration, so it divides by an old estimate and the weights outgrow "
    "the bound"
)
NEW_NORMS = "its batch norms normalise with the mean 0 and the variance 1 of new modules, and never learn others"
DROPOUT = "its dropout is off, and no line of the script turns training mode on"
BY_DRAWS = "its forward drew random numbers in training mode and draws none now, so dropout is off"


@final
@dataclass(frozen=True)
class LeftInEvaluation(ScriptRule):
    """The model trains in evaluation mode, after steps in training mode or from the first step on.

    Means:
        Dropout is off, batch normalisation uses running statistics that no longer follow, and spectral normalisation
        divides by an estimate that no longer follows the weights. The call of the model
        that each update is made from was in evaluation mode, after steps in training mode. Parts that are kept in
        evaluation mode inside a model in training mode are not meant. A model without a module of dropout or batch
        normalisation is judged by its draws: its forward drew random numbers in training mode and draws none in
        evaluation mode (`F.dropout(x, p, self.training)`). A model that was in evaluation mode in each of the first 32
        steps is reported if it trains batch norms whose running statistics are those of a new module; it is a note if
        it has dropout beside trained parameters, and no line of the script calls `train()`.

    Causes:
        - `from_pretrained`, which returns a model in evaluation mode, and no `model.train()`
        - `model.eval()` for an evaluation or a sample, and no `model.train()` after it
        - `model.train()` before the loop over epochs only

    Next:
        1. Call `model.train()` at the begin of each epoch, or after each evaluation.
    """

    eval_steps: int = threshold(4, "steps in a row in evaluation mode, after one in training mode")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        by_modules = [(row, BY_MODULES) for row in script_rows(window, "in-eval")]
        by_spectra = [(row, BY_SPECTRA) for row in script_rows(window, "in-eval-spectral")]
        by_draws = [(row, BY_DRAWS) for row in script_rows(window, "in-eval-no-draws")]
        found = []
        for row, what in (*by_modules, *by_spectra, *by_draws):
            beyond = row.values >= self.eval_steps
            if beyond.any():
                at = int(np.flatnonzero(beyond)[-1])
                since = int(row.steps[at]) - int(row.values[at]) + 1
                found.append(
                    Symptom(
                        name="left-in-evaluation",
                        severity="warning",
                        first_step=since,
                        last_step=int(window.steps[-1]),
                        message=f"{row.place} trains in evaluation mode from step {since} on: {what}",
                        signals=("script.value",),
                        numbers={"steps": row.last},
                    )
                )
        return tuple(found[:1]) or self._from_the_start(window)

    def _from_the_start(self, window: Window) -> tuple[Symptom, ...]:
        norms, dropouts = script_rows(window, "new-norms-off"), script_rows(window, "dropout-off")
        return tuple(
            replace(
                self.warning(window, row, f"{row.place} trains in evaluation mode from the first step on: {what}"),
                severity="warning" if norms else "note",
                first_step=1,
            )
            for row, what in (*((one, NEW_NORMS) for one in norms), *((one, DROPOUT) for one in dropouts))
        )[:1]
