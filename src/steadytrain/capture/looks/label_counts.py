"""Counts the labels of a likelihood over the looks: what a guess costs that knows their frequencies and no input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from steadytrain.capture.looks.class_weights import weights_as_counts
from steadytrain.capture.looks.label_entropy import label_entropy
from steadytrain.capture.looks.loss_graph import Likelihood, LossGraph
from steadytrain.capture.step.input_recorder import MicroBatch

CLASSES_MAX = 1000
"""Labels of more classes are not counted: their entropy would need more labels than a few batches have."""

LABELS_PER_CLASS = 10
"""Labels seen for each class that occurs, below which the entropy is not reported."""

LABELS_MIN = 8

LABEL_STEPS = frozenset((*range(40, 257, 24), *range(320, 1025, 64)))
"""Steps beside the looks in which the labels of a batch are read."""

ALONE_SHARE = 0.8
"""Share of the labels of a batch from which on it counts as one of a single class."""


class LabelCounts:
    """Serves the likelihood of one stream."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._choices = 0

    @torch.no_grad()
    def rows(self, one: Likelihood) -> Iterator[tuple[str, float]]:
        """``classes`` is the number of classes, ``label-entropy`` the entropy in nats of the labels so far,
        ``likelihood`` the mean cost of a label in nats by the scores of a layer, whatever the script makes of it.

        ``more-classes`` is the number where it is larger than in the look before, whose number is ``classes-before``:
        a queue of negatives that fills up, or more negatives from here on.
        There are no other rows where the labels are places in the batch (contrastive losses): all different, or all the
        same.
        """
        before, self._choices = self._choices, one.classes
        if 0 < before < one.classes:
            yield "more-classes", float(one.classes)
            yield "classes-before", float(before)
        used = one.targets[one.targets != one.ignored]
        if one.targets.is_floating_point() or one.classes < 2 or used.numel() < LABELS_MIN:
            return
        yield from class_rows(one)
        kinds = torch.unique(used).numel()
        if kinds < 2 or (kinds == used.numel() and one.classes <= 2 * kinds):
            return
        yield "classes", float(one.classes)
        if (cost := _cost(one)) is not None:
            yield "likelihood", cost
        if one.classes > CLASSES_MAX:
            return
        counts = torch.bincount(used.reshape(-1), minlength=one.classes).tolist()
        if len(counts) != len(self._counts):
            self._counts = [0] * len(counts)
        self._counts = [before + now for before, now in zip(self._counts, counts, strict=True)]
        total, seen = sum(self._counts), sum(count > 0 for count in self._counts)
        if total >= LABELS_PER_CLASS * seen:
            yield "label-entropy", label_entropy(self._counts)
            yield from weights_as_counts(self._counts, one.weight)


@torch.no_grad()
def class_rows(one: Likelihood) -> Iterator[tuple[str, float]]:
    """``batch-class`` is the class that nearly all labels of a batch have, else -1, where a row has one label."""
    used = one.targets[one.targets != one.ignored] if one.targets.dim() == 1 else one.targets[:0]
    if not one.targets.is_floating_point() and 2 <= one.classes <= CLASSES_MAX and used.numel() >= LABELS_MIN:
        most = torch.bincount(used.reshape(-1), minlength=one.classes)
        yield "batch-class", float(most.argmax()) if float(most.max()) >= ALONE_SHARE * used.numel() else -1.0


def batch_classes(graphs: Sequence[tuple[str, LossGraph, MicroBatch | None]]) -> Iterator[tuple[str, float]]:
    """``batch-class:LINE`` of the losses of a step that have one likelihood of a model's output."""
    for line, graph, call in graphs:
        if call is not None and len(graph.likelihoods) == 1:
            yield from ((f"{measure}:{line}", value) for measure, value in class_rows(graph.likelihoods[0]))


def _cost(one: Likelihood) -> float | None:
    """The mean cost of a label in nats, without weights; None if unknown."""
    found, targets = one.logarithms, one.targets
    if found is None or found.dim() not in (2, 3, 4) or found.shape[:1] + found.shape[2:] != targets.shape:
        return None
    used = targets != one.ignored
    costs = -found.gather(1, targets.masked_fill(~used, 0).unsqueeze(1)).squeeze(1)
    return float(costs[used].mean(dtype=torch.float32))
