"""Counts the labels of a likelihood over the looks: what a guess costs that knows their frequencies and no input."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from steadytrain.capture.looks.loss_graph import Likelihood

CLASSES_MAX = 1000
"""Labels of more classes are not counted: their entropy would need more labels than a few batches have."""

LABELS_PER_CLASS = 10
"""Labels seen for each class that occurs, below which the entropy is not reported."""

LABELS_MIN = 8


class LabelCounts:
    """Serves the likelihood of one stream."""

    def __init__(self) -> None:
        self._counts: list[int] = []

    @torch.no_grad()
    def rows(self, one: Likelihood) -> Iterator[tuple[str, float]]:
        """``classes`` is the number of classes, ``label-entropy`` the entropy in nats of the labels so far.

        There are no rows where the labels are places in the batch (contrastive losses): all different, or all the same.
        """
        used = one.targets[one.targets != one.ignored]
        if one.targets.is_floating_point() or one.classes < 2 or used.numel() < LABELS_MIN:
            return
        kinds = torch.unique(used).numel()
        if kinds < 2 or (kinds == used.numel() and one.classes <= 2 * kinds):
            return
        yield "classes", float(one.classes)
        if one.classes > CLASSES_MAX:
            return
        counts = torch.bincount(used.reshape(-1), minlength=one.classes).tolist()
        if len(counts) != len(self._counts):
            self._counts = [0] * len(counts)
        self._counts = [before + now for before, now in zip(self._counts, counts, strict=True)]
        total, seen = sum(self._counts), sum(count > 0 for count in self._counts)
        if total >= LABELS_PER_CLASS * seen:
            entropy = -math.fsum(n / total * math.log(n / total) for n in self._counts if n)
            few = (seen - 1) / (2.0 * total)  # Miller and Madow (1955): few labels look less equal than they are
            yield "label-entropy", min(entropy + few, math.log(one.classes))
