"""The rows of a validation or test set were trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class TrainedEvaluation(ScriptRule):
    """The rows of what the script calls a validation or a test set had all been trained on before.

    Means:
        The digests of the rows of each evaluation were compared with those of the rows that the model had been trained
        on until then. All evaluations of the run had rows of training only, and the script names them, in the line that
        calls the model or the head of the loop around it, as `val`, `valid`, `test`, `dev` or `holdout`. Such a metric
        shows how well the model remembers, not how well it generalises. It is reported when the script ends. An
        evaluation without such a name, one of the whole batch of a training with one batch, and rows of few different
        values are left alone.

    Causes:
        - the loader of the validation is made from the training set: a wrong variable
        - the training set is all data, the held-out part included
        - a split that is made anew at a resume, with another seed

    Next:
        1. Check what both loaders are made from: `set(train.indices) & set(val.indices)` has to be empty.
        2. Split once, with a fixed seed, and keep the indices with the checkpoint.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        if window.facts.get("moving_targets"):
            return ()
        return tuple(
            self.warning(
                window,
                row,
                f"the {row.last:,.0f} rows of the evaluation of {row.place} were all trained on before: its metric is "
                "one of training",
                rows=row.last,
            )
            for row in script_rows(window, "held-out-trained")[:1]
        )
