"""Inputs of the evaluations are on another scale than those of training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class EvaluationScale(ScriptRule):
    """The model is evaluated with inputs on another scale than those it is trained on.

    Means:
        In all evaluations without gradients, the inputs of half of the channels or more differ from those of
        training: their spread is more than three times as large. Of images it may be as small, too, or their
        mean lies more than three spreads away, or they lie between 0 and 1 and those of training around 0. The
        metrics of such an evaluation say nothing of the model. Rows that were trained on do not count, nor do
        inputs of one or two features, nor models with several inputs. It is a note for tables and series unless
        nearly all features differ: they may change with time.

    Causes:
        - `Normalize`, a scaler or the division by 255 in one of the two transforms only
        - a scaler that is fitted on the training rows, and not applied to the others
        - no fault: a test on data of another kind

    Next:
        1. Print mean and standard deviation of a batch of each loader.
        2. Give both the same transform, without its random parts for the evaluation.
    """

    def check(self, window: Window) -> tuple[Symptom, ...]:
        if window.facts.get("moving_targets"):
            return ()
        images, features = script_rows(window, "other-scale"), script_rows(window, "other-scale-of-features")
        told = [
            self.warning(
                window,
                row,
                f"{row.place} is evaluated with inputs on another scale than those it is trained on: "
                f"{row.last:.0%} of their {what} differ in spread or mean",
                share=row.last,
            )
            for rows, what in ((images, "channels"), (features, "features"))
            for row in rows[:1]
        ]
        sure = images or [one for one in features if one.last >= NEARLY_ALL]
        return tuple(one if sure else replace(one, severity="note") for one in told[:1])


NEARLY_ALL = 0.8
