"""Finds batches whose rows are all the same for the model, while their targets differ.

A cast that makes everything 0, a mask that hides all, an index that is ignored: the model gets nothing to tell the rows
apart by. All tensors that it is called with count, those of another model included.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from steadytrain.capture.looks.loss_graph import LossGraph
from steadytrain.capture.looks.row_keys import is_plain
from steadytrain.capture.step.input_recorder import MicroBatch, tensors_in

ROWS_MIN = 4
ELEMENTS_MAX = 1 << 22
"""Of a larger batch the first rows are read."""


@torch.no_grad()
def equal_input_rows(graph: LossGraph, call: MicroBatch | None) -> Iterator[tuple[str, float]]:
    """``equal-inputs`` is the number of rows in a batch whose rows are all the same, for a loss whose targets differ
    from row to row. ``constant-inputs`` is the one value of all its numbers, where they have one."""
    if call is None or call.samples < ROWS_MIN or not _targets_differ(graph):
        return
    given = [one for one in tensors_in((call.args, call.kwargs)) if one.dim() > 0 and one.numel()]
    of_rows = [one for one in given if len(one) == call.samples]
    if not of_rows or not all(is_plain(one) and one.grad_fn is None and not one.is_quantized for one in given):
        return
    read = [_first(one, call.samples) for one in given]
    if not all(torch.equal(one[:1], one[-1:]) for one in read) or not all(bool((one == one[:1]).all()) for one in read):
        return
    yield "equal-inputs", float(call.samples)
    numbers = [one for one in read if one.is_floating_point()]
    if numbers and all(bool((one == numbers[0].flatten()[0]).all()) for one in numbers):
        yield "constant-inputs", float(numbers[0].flatten()[0])


def _first(one: Tensor, rows: int) -> Tensor:
    """The first rows of a tensor; one without a row for each sample is a single column, which must be constant."""
    return one.detach()[: max(2, ELEMENTS_MAX * len(one) // one.numel())] if len(one) == rows else one.reshape(-1)


def _targets_differ(graph: LossGraph) -> bool:
    """Whether a loss function judges by targets that are not the same for all rows."""
    targets = [one.targets for one in graph.likelihoods] + [one.targets for one in graph.binary]
    targets += [*graph.squared, *graph.distant]
    return any(one.dim() > 0 and is_plain(one) and bool((one != one[:1]).any()) for one in targets)
