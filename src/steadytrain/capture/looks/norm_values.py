"""How many values a channel batch norms in training mode normalise over, from their nodes in the graph of a loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from steadytrain.capture.looks.graph_nodes import saved_tensor, shape_of

KINDS = frozenset({"NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm"})


def values_a_channel(kind: str, node: Any) -> int:
    """Rows times places of the output of a batch norm in training mode; 0 for all other nodes."""
    if kind not in KINDS:
        return 0
    shape = shape_of(node)
    mean = saved_tensor(node, "result1")  # empty where running statistics are used
    if len(shape) < 2 or mean is None or mean.numel() != shape[1]:
        return 0
    return math.prod(shape) // shape[1]


def usual_values(found: Sequence[int]) -> int:
    """The number that half of the norms do not exceed: one norm behind a pooling may have few in many a model."""
    return sorted(found)[(len(found) - 1) // 2]
