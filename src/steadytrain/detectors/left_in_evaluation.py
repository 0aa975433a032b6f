"""The model trains in evaluation mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows

BY_MODULES = "dropout is off and normalisation does not follow the batches"
BY_DRAWS = "its forward drew random numbers in training mode and draws none now, so dropout is off"


@final
@dataclass(frozen=True)
class LeftInEvaluation(ScriptRule):
    """The model was in training mode and is in evaluation mode now, while it goes on training.

    Means:
        Dropout is off, and batch normalisation uses running statistics that no longer follow. The call of the model
        that each update is made from was in evaluation mode, after steps in training mode. Parts that are kept in
        evaluation mode inside a model in training mode are not meant. A model without a module of dropout or batch
        normalisation is judged by its draws: its forward drew random numbers in training mode and draws none in
        evaluation mode (`F.dropout(x, p, self.training)`).

    Causes:
        - `model.eval()` for an evaluation or a sample, and no `model.train()` after it
        - `model.train()` before the loop over epochs only

    Next:
        1. Call `model.train()` at the begin of each epoch, or after each evaluation.
    """

    eval_steps: int = threshold(4, "steps in a row in evaluation mode, after one in training mode")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        by_modules = [(row, BY_MODULES) for row in script_rows(window, "in-eval")]
        by_draws = [(row, BY_DRAWS) for row in script_rows(window, "in-eval-no-draws")]
        found = []
        for row, what in (*by_modules, *by_draws):
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
        return tuple(found[:1])
