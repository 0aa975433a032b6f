"""Finds views that put the axes of a tensor in another order without moving its values.

``x.view(rows, classes, places)`` of a tensor [rows, places, classes] has the right shape and mixes places and classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, permutations
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import inputs_of_node, kind_of, shape_of
from steadytrain.core.torch_private import SAVED_SIZES

View = tuple[tuple[int, ...], tuple[int, ...]]
"""The shapes before and after it."""

VIEWS = frozenset({"View", "UnsafeView", "ReshapeAlias"})
PADS = frozenset({"Cat", "ConstantPadNd"})
"""Operations that make a relative shift: a column is put beside the scores, and a view moves each row by one."""

MOVES_AXES = frozenset({"Transpose", "Permute", "Slice"})
"""What moves the axes of a view's result, or cuts it: the view was meant to split them, as heads of attention beside
the rows, or to shift each row by one."""

BETWEEN = VIEWS | {"Slice", "Clone"}
STEPS_MAX = 6
AXES_MAX = 5

VALUES_MAX = 65_536
SAME_ORDER_MIN = 0.999
"""Correlation of values in one order, of which one side is scaled or shifted."""

CHANNELS = range(2, 5)
IMAGES_MAX = 16
SIDE_MIN = 4
ROUGHNESS_MAX = 0.6
"""An image with interleaved channels is that much smoother, at most, when it is read as [rows, columns, channels].
Chosen: noise is at 1, images in the right order are far above."""


def scrambled_view(kind: str, node: Any) -> View | None:
    """The view that ``node`` makes, if it scrambles axes."""
    if kind not in VIEWS:
        return None
    before, after = tuple(int(size) for size in SAVED_SIZES.on(node) or ()), shape_of(node)
    return (before, after) if scrambles(before, after) and not _is_shift(node) else None


def scrambles(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether a view from ``before`` to ``after`` has the axes of a permutation, though it moves nothing.

    Axes may be merged or split on the way: [rows, heads, places, width] of [rows, places, features] is such a view too.
    A view that only merges or only splits axes is none.
    """
    if 0 in before:
        return False
    one, other = [size for size in before if size > 1], [size for size in after if size > 1]
    if not 2 <= min(len(one), len(other)) <= max(len(one), len(other)) <= AXES_MAX:
        return False
    if math.prod(one) != math.prod(other) or _ends(one) <= _ends(other) or _ends(other) <= _ends(one):
        return False
    few, many = sorted((one, other), key=len)
    return any(few in _merged(moved, len(few)) for moved in permutations(many))


def _ends(shape: Sequence[int]) -> set[int]:
    """Where each axis ends, counted in blocks of the outer axes: what a split or a merge keeps."""
    return {math.prod(shape[:end]) for end in range(1, len(shape) + 1)}


def _merged(shape: Sequence[int], axes: int) -> Iterator[list[int]]:
    for cuts in combinations(range(1, len(shape)), axes - 1):
        bounds = (0, *cuts, len(shape))
        yield [math.prod(shape[begin:end]) for begin, end in pairwise(bounds)]


def _is_shift(node: Any) -> bool:
    """Whether a column was put beside what ``node`` views, or a view before it was cut: a relative shift."""
    cut = False
    for _ in range(STEPS_MAX):
        inputs = inputs_of_node(node)
        if len(inputs) != 1:
            return False
        node = inputs[0]
        kind = kind_of(node)
        if kind in PADS or (cut and kind in VIEWS):
            return True
        if kind not in BETWEEN:
            return False
        cut = cut or kind == "Slice"
    return False


def scrambled_rows(views: Sequence[View]) -> Iterator[tuple[str, float]]:
    """``scrambled-view``, with the shape of a batch of any size before and after it: the number of such views."""
    for before, after in views[:1]:
        yield f"scrambled-view:{_told(before)}>{_told(after, before[0])}", float(len(views))


def _told(shape: Sequence[int], rows: int | None = None) -> str:
    first = shape[0] if rows is None else rows
    at = list(shape).index(first) if first in shape else -1  # another axis may have as many places
    return "x".join("rows" if place == at else str(size) for place, size in enumerate(shape))


@torch.no_grad()
def viewed_inputs(given: Sequence[Tensor], inputs: Sequence[Tensor]) -> Iterator[View]:
    """The views between the inputs of a model and those of its first layers, found by their values.

    A layer's input that has the values of a model's input in the same order, scaled or not, was not permuted.
    """
    for one in inputs:
        for other in given:
            before, after = tuple(other.shape), tuple(one.shape)
            if other.numel() == one.numel() and before != after and scrambles(before, after):
                pair = torch.stack([each.detach().reshape(-1)[:VALUES_MAX].float() for each in (other, one)])
                if float(torch.corrcoef(pair)[0, 1]) > SAME_ORDER_MIN:
                    yield before, after


@torch.no_grad()
def interleaved_rows(inputs: Sequence[Tensor]) -> Iterator[tuple[str, float]]:
    """``interleaved-channels`` is how rough the images of a batch are, read as [rows, columns, channels], over how
    rough they are as they are given, [channels, rows, columns]: the median, where it is below 0.6 along both sides.
    Stripes of the width of the channels are smooth along one side as they are."""
    for one in inputs:
        if one.dim() != 4 or one.shape[1] not in CHANNELS or min(one.shape[2:]) < SIDE_MIN:
            continue
        given = one[:IMAGES_MAX].float()
        images, channels, height, width = given.shape
        other = given.reshape(images, height, width, channels).permute(0, 3, 1, 2)
        ratio = max(_smoother(given, other, side) for side in (2, 3))
        if ratio < ROUGHNESS_MAX:
            yield "interleaved-channels", ratio
            return


def _smoother(given: Tensor, other: Tensor, side: int) -> float:
    """The median over the images of the mean step between neighbours along ``side``, over that of ``given``; 1 where
    that is zero."""
    steps, others = (images.diff(dim=side).abs().mean((1, 2, 3)) for images in (given, other))
    return float(torch.where(steps > 0.0, others / steps.clamp(min=1e-30), 1.0).median())
