"""What single nodes of an autograd graph tell: their operation, shapes and saved values, and the axes between them."""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.hooks.saved_hooks import reading_runs_a_hook
from steadytrain.core.torch_private import (
    NODE_SHAPES,
    SAVED_AXES,
    SAVED_AXIS_0,
    SAVED_AXIS_1,
    SAVED_DIMENSION,
    SAVED_START,
)

OF_SHAPE = frozenset(
    {"View", "UnsafeView", "ReshapeAlias", "Transpose", "T", "Permute", "Slice", "Squeeze", "Unsqueeze", "Select"}
    | {"Index", "ToCopy", "Clone", "Alias", "Narrow", "Expand"}
)
"""Operations that rearrange or copy values without changing them."""

AXIS_STEPS_MAX = 64
"""Operations between a value and the one that made it, for which an axis is followed."""


def kind_of(node: Any) -> str:
    """The operation of ``node``: ``Addmm`` for ``AddmmBackward0``."""
    return re.sub(r"Backward\d*$", "", type(node).__name__)


def saved_tensor(node: Any, name: str) -> Tensor | None:
    """The tensor that ``node`` saved as ``name``.

    None if there is none, if a backward has freed it or the script has overwritten it, or if reading it would run a
    script's hook.
    """
    raw = getattr(node, f"_raw_saved_{name}", None)
    if raw is None or reading_runs_a_hook(raw):
        return None
    try:
        value = getattr(node, f"_saved_{name}")
    except RuntimeError:
        return None
    return value.detach() if isinstance(value, Tensor) else None


def plain_tensor(node: Any, name: str) -> Tensor | None:
    """The same, if it is a plain tensor of usual precision: no shard, no subclass, no number format of eight bits."""
    value = saved_tensor(node, name)
    usual = value is not None and type(value) is Tensor and value.layout == torch.strided and not value.is_meta
    return value if usual and value is not None and (value.dtype.itemsize > 1 or value.dtype == torch.bool) else None


def shape_of(node: Any) -> tuple[int, ...]:
    """The output shape of ``node``, -1 for a ragged size of a nested tensor; empty if unknown."""
    shapes = NODE_SHAPES.on(node) or ()
    return tuple(-1 if isinstance(size, torch.SymInt) else int(size) for size in shapes[0].shape) if shapes else ()


def inputs_of_node(node: Any) -> list[Any]:
    return [one for one, _ in node.next_functions if one is not None]


def made_by(node: Any) -> Any:
    """The node that computed the first input of ``node``, past the operations ``OF_SHAPE``; None if there is none."""
    following = inputs_of_node(node)
    while following and kind_of(following[0]) in OF_SHAPE:
        following = inputs_of_node(following[0])
    return following[0] if following else None


def dropped_in_front(node: Any, classes: int) -> int:
    """How many places slices leave out at the front of scores [rows, places, classes], between the first input of
    ``node`` and the operation that made it: 1 for ``scores[:, 1:]``."""
    dropped, following = 0, inputs_of_node(node)
    for _ in range(AXIS_STEPS_MAX):
        if not following or kind_of(following[0]) not in OF_SHAPE | {"LogSoftmax"}:
            break
        one = following[0]
        shape = shape_of(one)
        of_scores = kind_of(one) == "Slice" and len(shape) == 3 and shape[-1] == classes
        if of_scores and signed(SAVED_DIMENSION.on(one, 0)) % 3 == 1:
            dropped += max(0, signed(SAVED_START.on(one, 0)))
        following = inputs_of_node(one)
    return dropped


def multiplied_by(kind: str, node: Any) -> float | None:
    """By which number a node multiplies its one input; None where it does something else."""
    if kind == "Neg" or (kind in ("Add", "Sub") and len(inputs_of_node(node)) == 1):
        return 1.0
    if kind not in ("Mul", "Div"):
        return None
    found = [one for name in ("other", "self") if (one := saved_tensor(node, name)) is not None and one.numel() == 1]
    if len(found) != 1 or found[0].device.type != "cpu" or not float(found[0]):
        return None
    return float(found[0]) if kind == "Mul" else 1.0 / float(found[0])


def signed(number: int) -> int:
    """Restore the sign: torch stores a node's negative numbers as unsigned 64-bit."""
    return number - (1 << 64) if number >= 1 << 63 else number


def axis_before(node: Any, axis: int, past: frozenset[str] = OF_SHAPE) -> tuple[Any, int] | None:
    """Follow ``axis`` of the output of ``node`` back to the first operation that is not in ``past``.

    Returns that operation and the axis of its output; None if an operation on the way loses the axis.
    """
    for _ in range(AXIS_STEPS_MAX):
        if kind_of(node) not in past:
            return node, axis
        inputs = inputs_of_node(node)
        if len(inputs) != 1:
            return None
        before = _axis_of_input(node, axis, shape_of(node), shape_of(inputs[0]))
        if before is None:
            return None
        node, axis = inputs[0], before
    return None


def _axis_of_input(node: Any, axis: int, after: tuple[int, ...], before: tuple[int, ...]) -> int | None:
    kind = kind_of(node)
    if not 0 <= axis < len(after):
        return None
    if kind == "T" or kind == "Transpose":
        one, two = (0, 1) if kind == "T" else (SAVED_AXIS_0.on(node, 0), SAVED_AXIS_1.on(node, 1))
        one, two = signed(one) % len(after), signed(two) % len(after)
        return {one: two, two: one}.get(axis, axis)
    if kind == "Permute":
        return signed(SAVED_AXES.on(node)[axis]) % len(after)
    if kind == "Select":
        return axis + (signed(SAVED_DIMENSION.on(node, 0)) % len(before) <= axis)
    if kind in ("Index", "Expand"):  # both keep the last axes
        kept = axis - len(after) + len(before)
        return kept if kept >= 0 and before[kept] == after[axis] and (kind == "Expand" or kept > 0) else None
    if math.prod(after) == math.prod(before):  # all others keep the order of the elements
        inner = math.prod(after[axis + 1 :])
        same = [at for at, size in enumerate(before) if size == after[axis] and math.prod(before[at + 1 :]) == inner]
        return same[0] if same and after[axis] > 1 else None
    return axis if len(after) == len(before) and after[axis] == before[axis] else None
