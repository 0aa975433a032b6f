"""Batches hold one class after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class SortedLabels(ScriptRule):
    """Nearly all labels of a batch are of one class, and the class changes from time to time.

    Means:
        A classifier gets batches of one class, then batches of the next. It learns to answer with the class of the
        moment: the training loss falls almost to zero, jumps when the class changes, and the model knows only the last
        class in the end. Two classes are not judged: discriminators get a batch of each on purpose.

    Causes:
        - data that are stored by class, read in that order: `shuffle=False`, files or shards one after the other
        - a shuffle buffer that is far smaller than the runs of one class

    Next:
        1. Shuffle the data set, or interleave the files of the classes.
        2. Print the labels of a few batches.
    """

    looks_min: int = threshold(6, "looks at a batch with labels of a class in each row")
    one_class_share_min: float = threshold(0.8, "share of these looks in which one class has nearly all labels")
    classes_min: int = threshold(3, "classes that had a batch for themselves")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        for row in script_rows(window, "batch-class")[:1]:
            alone = row.values[row.values >= 0]
            classes = len(set(alone.tolist()))
            if len(row.values) < self.looks_min or classes < self.classes_min:
                continue
            share = len(alone) / len(row.values)
            if share >= self.one_class_share_min:
                text = (
                    f"{len(alone)} of {len(row.values)} batches held nearly one class alone, {classes} classes one "
                    "after the other: the data come in the order of their classes"
                )
                return (self.warning(window, row, text, share=share, classes=float(classes)),)
        return ()
