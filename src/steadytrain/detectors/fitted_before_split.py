"""Preprocessing that is fitted to all rows before they are split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.detectors import SourceRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class FittedBeforeSplit(SourceRule):
    """Preprocessing is fitted to all rows before held-out ones are split off.

    Means:
        The source of the script fits to all rows, and splits them afterwards. Columns that are chosen by the labels of
        all rows predict the held-out labels even where nothing can be learned, and rows that are copied before the
        split are in both parts: the score is too good, which is a warning. A scaler shows the training only the mean
        and the spread of held-out rows, and in a series those of the future: a note.

    Causes:
        - `SelectKBest().fit_transform(x, y)` before `train_test_split`
        - SMOTE, or copies of the rare class, before the split
        - `StandardScaler().fit_transform(x)` of the whole table or series

    Next:
        1. Split first; fit to the training rows and transform the others.
        2. With folds, fit inside each fold: `make_pipeline(StandardScaler(), model)`.
        3. Evaluate again: that score is the real one.
    """

    kind: ClassVar[str] = "learned-before-split"
    says: ClassVar[str] = (
        "chooses columns by the labels, or copies rows, before the split: the held-out rows are no longer unseen"
    )

    def check(self, window: Window) -> tuple[Symptom, ...]:
        told = "fits a scaler to all rows before the split: training knows the scale of the held-out rows"
        scaled = script_rows(window, "scaled-before-split")
        return super().check(window) or tuple(
            self.note(window, row, f"{row.place} {told}", lines=float(len(scaled))) for row in scaled[:1]
        )
