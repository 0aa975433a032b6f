"""Reads the weights of the terms that a script adds up to its loss, in some steps of the whole run.

The terms are the operands of the sums next to the loss. The weight of a term is the product of the numbers that
multiply or divide it there. Only a weight relative to that of the first term is kept: a loss scale is in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.looks.graph_nodes import inputs_of_node, kind_of, multiplied_by
from steadytrain.capture.looks.term_reductions import outweighed
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
        terms = list(_terms(root.grad_fn))[:TERMS_MAX]
        if len(terms) < 2 or not terms[0][1]:
            return
        place = innermost_place()
        self._found = {
            f"term-weight:{place}, term {number}": abs(weight / terms[0][1])
            for number, (_, weight) in enumerate(terms[1:], 2)
        }
        heavy = outweighed(terms, multiplied_by)
        if heavy is not None:
            self._found[f"summed-term:{place}, term {heavy[0]}"] = heavy[1]

    def rows(self) -> Iterator[tuple[str, float]]:
        """``term-weight:LINE, term N`` is the weight of a further term over that of the first, once a reading.

        ``summed-term:LINE, term N`` is how much more a divergence that is summed over its row weighs beside an average.
        """
        found, self._found = self._found, {}
        yield from found.items()


def _terms(root: Any) -> Iterator[tuple[Any, float]]:
    """The nodes and weights of the terms, in the order of the sum."""
    waiting, left = [(root, 1.0)], NODES_MAX
    while waiting and left:
        left -= 1
        node, weight = waiting.pop()
        kind, inputs = kind_of(node), inputs_of_node(node)
        factor = multiplied_by(kind, node) if len(inputs) == 1 else None
        if kind in ("Add", "Sub") and len(inputs) == 2:
            waiting += [(inputs[1], weight), (inputs[0], weight)]
        elif factor is not None:
            waiting.append((inputs[0], weight * factor))
        else:
            yield node, weight
