"""Measures the data that reaches the first layers of a model: inputs of linear layers and convolutions.

They are read from what these layers saved for their backward, so preprocessing inside the model has happened. Models
with normalisation layers correct any scale; for them only inputs that are all zero are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import plain_tensor

OPERANDS = {"Addmm": ("mat1", 1), "Mm": ("self", 0), "Convolution": ("input", 0)}
"""Operations of first layers: the name of the saved input, and its place among the operands."""

NORMS = ("NativeBatchNorm", "NativeLayerNorm", "NativeGroupNorm", "CudnnBatchNorm", "FusedRmsNorm")
INPUTS_MAX = 4
ROWS_MAX, ELEMENTS_MIN, ROWS_MIN = 256, 64, 8

SMALL = 0.01
"""Largest magnitude of inputs that were divided once too often: a byte divided by 255 twice is at most 0.004."""

BYTE, BYTE_MEAN = 255.0, 16.0
"""Whole numbers up to the first, with a mean above the second, are pixels."""

OFFSET_RATIO = 10.0
"""A mean so many standard deviations from zero, in half of the features."""


class FirstInputs:
    """Collects the inputs without a gradient of the layers of one graph, but for the states of zeros with which
    recurrences begin: their weight is multiplied with later states too, which have a gradient."""

    def __init__(self) -> None:
        self._given: list[tuple[Tensor, int | None]] = []
        self._recurrent: set[int] = set()

    def take(self, kind: str, node: Any) -> None:
        name, place = OPERANDS.get(kind, ("", 0))
        if not name or len(node.next_functions) <= place:
            return
        if node.next_functions[place][0] is not None:
            if kind != "Convolution" and (weight := _weight_of(node, place)) is not None:
                self._recurrent.add(weight)
        elif len(self._given) < INPUTS_MAX:
            values = plain_tensor(node, name)
            if values is not None and values.is_floating_point():
                self._given.append((values, _weight_of(node, place)))

    def inputs(self) -> list[Tensor]:
        return [one for one, weight in self._given if weight not in self._recurrent]


def _weight_of(node: Any, place: int) -> int | None:
    """The id of the parameter that ``node`` multiplies; None if it is not known."""
    below = node.next_functions[place + 1][0] if len(node.next_functions) > place + 1 else None
    while below is not None and not hasattr(below, "variable"):
        below = below.next_functions[0][0] if len(below.next_functions) == 1 else None
    return id(below.variable) if below is not None else None


@torch.no_grad()
def input_rows(inputs: Sequence[Tensor], *, normalises: bool, looked_up: bool) -> Iterator[tuple[str, float]]:
    """Measures of the first inputs of one graph; each comes with the first input that shows it.

    ``zero-inputs`` is the number of elements, if all of them are 0 and no embedding was looked up. ``small-inputs`` is
    the largest magnitude, where it is below 0.01. ``byte-inputs`` is the largest of whole numbers from 0 to 255.
    ``offset-inputs`` is the median distance of a feature's mean from zero in its standard deviations, where it is
    large.
    """
    given = [one for one in inputs[:INPUTS_MAX] if one.dim() >= 2 and one.shape[0] >= ROWS_MIN]
    if not given or sum(one.numel() for one in given) < ELEMENTS_MIN:
        return
    largest = [float(one.abs().max()) for one in given]
    if not looked_up and not any(largest):
        yield "zero-inputs", float(sum(one.numel() for one in given))
    for one, most in zip(given, largest, strict=True):
        if normalises or not most or one.numel() < ELEMENTS_MIN:
            continue
        if most < SMALL:
            yield "small-inputs", most
            return
        values = one[:ROWS_MAX].float()
        mean = float(values.mean())
        if float(values.min()) >= 0.0 and mean > BYTE_MEAN and most <= BYTE and bool((values == values.round()).all()):
            yield "byte-inputs", most
            return
        features = values.transpose(0, 1).flatten(1)
        spread = features.std(1)
        varies = spread > 0.0
        ratios = (features.mean(1).abs() / spread)[varies]
        if len(ratios) and float(ratios.median()) > OFFSET_RATIO:
            yield "offset-inputs", float(ratios.median())
            return
