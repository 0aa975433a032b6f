"""Computes the loss that the script means: the root of backward, without the scaling factors applied to it.

Scripts divide the loss by the number of micro-batches and multiply it by a gradient scaler's scale before backward.
Both leave nodes at the root of the autograd graph. A division by 8 may also be a mean over 8 tokens. So a constant
counts as accumulation only if it equals the number of backward calls of the step. The scale is recognised because it
is the scaler's own tensor.

A step may call backward several times (:func:`loss_of_step`). The losses of micro-batches give their mean, or their sum
if each is divided by a count of the whole step. Different losses are added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torch import Tensor

from steadytrain.capture.step.script_frames import FrameLine, local_of, user_frames
from steadytrain.core.torch_private import (
    SAVED_OTHER,
    SAVED_REDUCTION,
    SAVED_SELF,
    SAVED_SIZES,
    SAVED_WEIGHT,
    SEQUENCE,
)

FACTORS_MAX = 8
SUM_OF_ALL = 2
"""``reduction="sum"``, as torch's losses keep it for their backward."""

TOTAL = "num_items_in_batch"
"""The variable by which transformers, and trainers derived from it, divide each micro-batch: the items of the step."""

COUNT_EXCESS = 1.001
"""A divisor that exceeds a micro-batch's own count by this factor counts more than the micro-batch."""


@dataclass(frozen=True)
class Factor:
    """A scalar factor of the loss: multiplied by (``power`` 1) or divided by (``power`` -1) ``value``."""

    value: Tensor
    power: int


@dataclass(frozen=True)
class LossTerm:
    """One backward call: its scalar root, the factors applied to the loss, and the script's lines that called it.

    ``nodes`` are the sequence numbers of the graph nodes from the root down past the factors; each of them may be the
    loss itself. ``counted`` is the number of elements in the sum below the factors, None if there is no sum or its
    count is unknown. ``of_total`` means that a trainer divided by a count of the whole step. ``call`` is the number of
    the preceding model call and the lines of the script that made it.
    """

    root: Tensor
    factors: tuple[Factor, ...]
    nodes: tuple[int, ...]
    frames: tuple[FrameLine, ...]
    counted: Tensor | float | None = None
    of_total: bool = False
    call: tuple[int, Lines] | None = None

    @property
    def origin(self) -> str | None:
        """``file:line`` of the backward call."""
        return f"{self.frames[0].code.co_filename}:{self.frames[0].line}" if self.frames else None

    @property
    def lines(self) -> Lines:
        """The lines that were running when backward was called."""
        return lines_of(self.frames)


Lines = tuple[tuple[CodeType, int], ...]
"""Functions of the script, innermost first, each with the line that it was at."""


def lines_of(frames: Sequence[FrameLine]) -> Lines:
    """Functions and lines of ``frames`` without frame ids: equal in each iteration of a loop."""
    return tuple((frame.code, frame.line) for frame in frames)


def loss_term(root: Tensor, call: tuple[int, Lines] | None = None) -> LossTerm:
    """Split the root of a backward call into loss and factors. ``root`` has one element; no device is synchronised."""
    factors: list[Factor] = []
    node = root.grad_fn
    nodes = [_sequence(node)]
    while node is not None and len(factors) < FACTORS_MAX:
        factor = _factor_of(node)
        following = _only_input(node)
        if factor is None or following is None:
            break
        factors.append(factor)
        node = following
        nodes.append(_sequence(node))
    of_total = local_of(TOTAL) is not None
    return LossTerm(root.detach(), tuple(factors), tuple(nodes), user_frames(), _counted(node), of_total, call)


def loss_of_step(
    losses: Sequence[float],
    terms: Sequence[LossTerm],
    factors: Sequence[Sequence[tuple[float, int]]],
    counts: Iterator[float],
) -> float | None:
    """The loss of a step from the losses of its backward calls; None if it had none.

    ``factors`` are the values of each term's factors with their powers. ``counts`` are the values of the counts that
    are tensors. Backward calls from one line of the script, or after one line that calls the model, are micro-batches
    of one loss. They give their mean, or their sum if each is divided by a count of the whole step. Different losses
    (two halves of a discriminator's batch, a penalty) are added, as their gradients are.
    """
    if len(losses) < 2:
        return losses[0] if losses else None
    calls = len(terms)
    of_total = [_divided_by_total(*one, counts, calls) for one in zip(terms, factors, strict=True)]
    of_all = 0.0
    for group in _same_loss(terms):
        part = math.fsum(losses[at] for at in group)
        of_all += part if all(of_total[at] for at in group) else part / len(group)
    return of_all


def _divided_by_total(
    term: LossTerm, factors: Sequence[tuple[float, int]], counts: Iterator[float], calls: int
) -> bool:
    """Whether a micro-batch is divided by a count of the whole step, and not by the number of micro-batches."""
    counted = next(counts) if isinstance(term.counted, Tensor) else term.counted
    if any(_is_accumulation(value, power, calls) for value, power in factors):
        return False  # divided by their number, which ``unscaled`` has removed
    divisors = [value for value, power in factors if power == -1]
    return term.of_total or (counted is not None and any(value > counted * COUNT_EXCESS for value in divisors))


def _same_loss(terms: Sequence[LossTerm]) -> list[list[int]]:
    """Positions of the terms that are micro-batches of one loss."""
    numbers = [term.call[0] for term in terms if term.call is not None]
    if len(numbers) < len(terms):
        return [list(range(len(terms)))]  # without a recorded model call, losses cannot be distinguished
    by_call = len(set(numbers)) == len(numbers)
    groups: list[list[int]] = []
    for at, term in enumerate(terms):
        for group in groups:
            other = terms[group[0]]
            if term.lines == other.lines or (by_call and term.call and other.call and term.call[1] == other.call[1]):
                group.append(at)
                break
        else:
            groups.append([at])
    return groups


def unscaled(root: float, factors: Iterable[tuple[float, int]], *, scales: set[float], backward_calls: int) -> float:
    """The loss before scaling: the root without known loss scales and the accumulation over ``backward_calls``."""
    value = root
    accumulation_left = backward_calls > 1
    for factor, power in factors:
        if factor == 1.0:  # an accumulation of one, of a trainer around one of the script's own
            continue
        if power == 1 and factor in scales:
            value /= factor
        elif accumulation_left and _is_accumulation(factor, power, backward_calls):
            value *= backward_calls
            accumulation_left = False
        else:
            break
    return value


def _is_accumulation(factor: float, power: int, backward_calls: int) -> bool:
    """Whether a factor takes the mean over ``backward_calls`` micro-batches."""
    divided_by = factor if power == -1 else (1.0 / factor if factor else 0.0)
    return abs(divided_by - backward_calls) < 1e-3


def _factor_of(node: Any) -> Factor | None:
    name = type(node).__name__
    if name not in ("DivBackward0", "MulBackward0"):
        return None
    other = SAVED_OTHER.on(node)
    if not isinstance(other, Tensor):
        other = SAVED_SELF.on(node) if name == "MulBackward0" else None
    if not isinstance(other, Tensor) or other.numel() != 1 or other.requires_grad:
        return None
    # No ``detach``: the tensor needs none, and under a dispatch mode a plain number would not reach it as a tensor.
    return Factor(other, -1 if name == "DivBackward0" else 1)


def _counted(node: Any) -> Tensor | float | None:
    """The number of elements that ``node`` sums; a likelihood counts the targets that are not ignored."""
    sizes = SAVED_SIZES.on(node) if type(node).__name__ in ("SumBackward0", "SumBackward1") else None
    if sizes is not None:
        return float(math.prod(int(size) for size in sizes))
    if SAVED_REDUCTION.on(node) == SUM_OF_ALL:
        weight = SAVED_WEIGHT.on(node)
        return weight.detach() if isinstance(weight, Tensor) else None
    return None


def _only_input(node: Any) -> Any:
    inputs = [edge for edge, _ in node.next_functions if edge is not None]
    return inputs[0] if len(inputs) == 1 else None


def _sequence(node: Any) -> int:
    return int(SEQUENCE.of(node)()) if node is not None else -1


def scalar_outputs(output: Any) -> dict[int, tuple[Any, ...]]:
    """Graph node and path of each one-element output: they show whether the model returns the loss itself."""
    found: dict[int, tuple[Any, ...]] = {}

    def walk(value: Any, path: tuple[Any, ...]) -> None:
        if isinstance(value, Tensor):
            if value.numel() == 1 and value.grad_fn is not None:
                found[int(SEQUENCE.of(value.grad_fn)())] = path
        elif isinstance(value, dict):
            for key, entry in value.items():
                walk(entry, (*path, key))
        elif isinstance(value, (list, tuple)):
            for key, entry in enumerate(value):
                walk(entry, (*path, key))

    walk(output, ())
    return found
