"""Reads the weights of the terms that a script adds up to its loss, in some steps of the whole run.

The terms are the operands of the sums next to the loss. The weight of a term is the product of the numbers that
multiply or divide it there. Only a weight relative to that of the first term is kept: a loss scale is in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import inputs_of_node, kind_of, saved_tensor
from steadytrain.capture.step.script_frames import innermost_place

EVERY, TERMS_MAX, NODES_MAX = 64, 6, 64


class TermWeights:
    """Serves one stream: the weights of the newest loss that was read."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}

    @torch.no_grad()
    def read(self, root: Tensor, step: int) -> None:
        """Reads the loss ``root`` of ``step`` before its backward, one step in ``EVERY``."""
        if step % EVERY or root.grad_fn is None:
            return
        weights = list(_weights(root.grad_fn))[:TERMS_MAX]
        if len(weights) > 1 and weights[0]:
            place = innermost_place()
            self._found = {
                f"term-weight:{place}, term {number}": abs(one / weights[0])
                for number, one in enumerate(weights[1:], 2)
            }

    def rows(self) -> Iterator[tuple[str, float]]:
        """``term-weight:LINE, term N`` is the weight of a further term over that of the first, once a reading."""
        found, self._found = self._found, {}
        yield from found.items()


def _weights(root: Any) -> Iterator[float]:
    """The weights of the terms, in the order of the sum."""
    waiting, left = [(root, 1.0)], NODES_MAX
    while waiting and left:
        left -= 1
        node, weight = waiting.pop()
        kind, inputs = kind_of(node), inputs_of_node(node)
        factor = _factor(kind, node) if len(inputs) == 1 else None
        if kind in ("Add", "Sub") and len(inputs) == 2:
            waiting += [(inputs[1], weight), (inputs[0], weight)]
        elif factor is not None:
            waiting.append((inputs[0], weight * factor))
        else:
            yield weight


def _factor(kind: str, node: Any) -> float | None:
    """By which number a node multiplies its one input; None where it does something else."""
    if kind == "Neg" or (kind in ("Add", "Sub") and len(inputs_of_node(node)) == 1):
        return 1.0
    if kind not in ("Mul", "Div"):
        return None
    found = [one for name in ("other", "self") if (one := saved_tensor(node, name)) is not None and one.numel() == 1]
    if len(found) != 1 or found[0].device.type != "cpu" or not float(found[0]):
        return None
    return float(found[0]) if kind == "Mul" else 1.0 / float(found[0])
