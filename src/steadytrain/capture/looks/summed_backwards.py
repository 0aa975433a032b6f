"""Finds micro-batches whose gradients are summed: several backward calls from one line, and nothing divided by k.

There is no row for losses of different lines or of one forward (several tasks), losses that are divided or weighted at
their root, sums over a batch, losses divided by a count of the step, and gradients that the script changed before the
update.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import inputs_of_node
from steadytrain.capture.step.loss import Factor, LossTerm
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.torch_private import VERSION

SAMPLED = 4
"""Parameters whose gradients are checked for changes between the last backward and the update."""

ADDED_MAX = 8
"""Parts of a sum of losses that are inspected."""


@dataclass(frozen=True)
class _Before:
    """A parameter's gradient before the first backward of a step: -1 for none, else its version."""

    parameter: Tensor
    version: int


class SummedBackwards:
    """Serves one stream, in the steps of its looks."""

    def __init__(self) -> None:
        self._plain: list[LossTerm] = []
        self._before: list[_Before] = []

    def backward_begins(self, stream: Stream, term: LossTerm, root: Tensor, *, scaled: bool) -> None:
        """The loss ``term`` with its graph ``root`` is about to go backward. ``scaled``: with a gradient scaler."""
        if not self._before:
            trained = [one for one in stream.parameters if one.requires_grad][:SAMPLED]
            self._before = [_Before(one, -1 if one.grad is None else VERSION.of(one.grad)) for one in trained]
        if term.counted is None and not term.of_total and not _is_weighted(term, root.grad_fn, scaled=scaled):
            self._plain.append(term)

    def rows(self, stream: Stream, seen: StepInProgress, *, scaled: bool) -> Iterator[tuple[str, float]]:
        """``summed-backwards:LINE`` is k, the backward calls of the step, if all come from that line.

        ``summed-steps:LINE`` is k as well, if SGD applies the sum without clipping.
        """
        plain, before = self._plain, self._before
        self._plain, self._before = [], []
        terms = seen.losses
        count = len(terms)
        if (
            count < 2
            or len(plain) != count
            or not terms[0].frames
            or any(term.lines != terms[0].lines for term in terms)
        ):
            return
        if len({term.call[0] for term in terms if term.call is not None}) != count:
            return
        if not any(_is_sum(one, count, seen.clipping.clips + scaled) for one in before):
            return
        line = terms[0].frames[0].place
        yield f"summed-backwards:{line}", float(count)
        if not seen.clipping.clips and all(type(one) is torch.optim.SGD for one in stream.optimizers):
            yield f"summed-steps:{line}", float(count)


def _is_weighted(term: LossTerm, node: Any, *, scaled: bool) -> bool:
    """Whether the loss, or a part of the sum that it is, was divided or multiplied by a number."""
    if any(not (scaled and _is_large(factor)) for factor in term.factors):
        return True
    for _ in term.factors:
        node = inputs_of_node(node)[0]
    waiting = [node]
    for _ in range(ADDED_MAX):
        if not waiting:
            break
        node = waiting.pop()
        kind = type(node).__name__
        if kind == "AddBackward0":
            waiting += inputs_of_node(node)
        elif kind in ("DivBackward0", "MulBackward0"):
            return True
    return False


def _is_large(factor: Factor) -> bool:
    """Whether ``factor`` may be a loss scale. One on an accelerator is not read."""
    return factor.power == 1 and (factor.value.device.type != "cpu" or float(factor.value) >= 1.0)


def _is_sum(before: _Before, count: int, others: int) -> bool:
    """Whether the gradient was only added to since ``before``, but for ``others`` writes at most (clips, unscaling)."""
    gradient = before.parameter.grad
    if gradient is None:
        return False
    written: int = VERSION.of(gradient) - (count - 1 if before.version < 0 else before.version + count)
    return 0 <= written <= others
