"""Classifies tensors by origin and values: logits, probabilities, log-probabilities."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from steadytrain.core.torch_private import SAVED_DIMENSION, SAVED_START

SUM_OF_ONE = 1e-3
KEEPS_KIND = frozenset(
    {"view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "float", "to", "clone", "__getitem__"}
)
KINDS = {
    "softmax": "probabilities",
    "sigmoid": "probabilities",
    "sigmoid_": "probabilities",
    "log_softmax": "log-probabilities",
    "logsigmoid": "log-probabilities",
}
ENDS = {"sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "tanh": (-1.0, 1.0), "relu": (0.0, math.inf)}

CUT_NODES_MAX, CUT_MAX = 8, 1 << 20
SHAPES_ALONE = frozenset(
    f"{name}Backward0"
    for name in ("View", "UnsafeView", "ReshapeAlias", "Clone", "Transpose", "Permute", "T", "ToCopy", "Slice", "Alias")
)


class TensorKinds:
    """Tracks the results of functions with weak references."""

    def __init__(self) -> None:
        self._kinds: Any = WeakIdKeyDictionary()
        self._ends: Any = WeakIdKeyDictionary()

    def made(self, name: str, result: Any) -> None:
        """Registers ``result`` of the function ``name``, in place or not."""
        if not isinstance(result, Tensor):
            return
        if name in KINDS:
            self._kinds[result] = KINDS[name]
        ends = ENDS.get(name if name in KINDS else name.rstrip("_"))
        if ends is not None:
            self._ends[result] = ends

    def kept(self, name: str, source: Any, result: Any) -> None:
        """Registers that ``result`` has all or some of the values of ``source``."""
        if not (isinstance(source, Tensor) and isinstance(result, Tensor) and result.is_floating_point()):
            return
        if source in self._kinds and (name != "__getitem__" or result.shape[-1:] == source.shape[-1:]):
            self._kinds[result] = self._kinds[source]
        if source in self._ends:
            self._ends[result] = self._ends[source]

    def ends_of(self, value: Tensor) -> tuple[float, float] | None:
        """The range of the function that made ``value``; None if unbounded or unknown."""
        ends: tuple[float, float] | None = self._ends.get(value)
        return ends

    def kind_of(self, value: Tensor) -> str:
        if value in self._kinds:
            return str(self._kinds[value])
        if value.dim() >= 2 and value.shape[-1] > 1 and value.is_floating_point():
            if bool((value >= 0).all()) and sums_to_one(value.float(), class_dimension(value)):
                return "probabilities"
            if bool((value <= 0).all()) and sums_to_one(value.float().exp(), class_dimension(value)):
                return "log-probabilities"
            return "logits"
        return "any"


def class_dimension(value: Tensor) -> int:
    return 1 if value.dim() > 1 else 0


def sums_to_one(value: Tensor, dimension: int) -> bool:
    sums = [value.sum(dimension)] + ([value.sum(-1)] if value.dim() > 2 else [])
    return any(bool(((total - 1).abs() < SUM_OF_ONE).all()) for total in sums)


def places_cut(value: Tensor) -> int:
    """How many places a value lost at the begin of its second dimension since it was computed: 1 of ``logits[:, 1:]``.

    Read in the graph, behind operations that only change the shape.
    """
    node, cut = value.grad_fn, 0
    for _ in range(CUT_NODES_MAX):
        if node is None or node.name() not in SHAPES_ALONE:
            break
        if node.name() == "SliceBackward0" and SAVED_DIMENSION.on(node) == 1:
            cut += int(SAVED_START.on(node) or 0)
        node = node.next_functions[0][0] if node.next_functions else None
    return cut if cut < CUT_MAX else 0
