"""Finds the parameters behind a backward, and which of them changed in place after it. Nothing is concluded here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from steadytrain.core.torch_private import VERSION

NODES_MAX = 20_000
"""Nodes of a loss's graph in which its parameters are looked for."""

SAMPLED_ELEMENTS = 16


class Before:
    """Versions of ``parameters``, and values of ``sampled``: a write through ``.data`` has no version."""

    def __init__(self, parameters: Iterable[Tensor], sampled: Iterable[Tensor]) -> None:
        self._parameters = list(parameters)
        self._versions = [VERSION.of(one) for one in self._parameters]
        self._values = {id(one): (one, *_sample(one)) for one in sampled}
        self.by_version = False
        """Whether each parameter that the last :meth:`changed` found has another version."""

    def changed(self) -> list[Tensor]:
        """The parameters that differ now."""
        written = [one for one, old in zip(self._parameters, self._versions, strict=True) if VERSION.of(one) != old]
        known = set(map(id, written))
        more = [
            one
            for key, (one, places, values) in self._values.items()
            if key not in known and values != _values(one, places)
        ]
        self.by_version = not more
        known |= set(map(id, more))
        return [one for one in self._parameters if id(one) in known]


def leaves(roots: Iterable[Tensor]) -> list[Tensor]:
    """The tensors into which a backward from ``roots`` accumulates gradients, in the order of the graph."""
    found: dict[int, Tensor] = {}
    for leaf in _leaves(roots):
        found[id(leaf)] = leaf
    return list(found.values())


def reaches(roots: Iterable[Tensor], wanted: Collection[int]) -> bool:
    """Whether a backward from ``roots`` reaches one of the tensors with these ids; the search ends at the first."""
    return any(id(leaf) in wanted for leaf in _leaves(roots))


def _leaves(roots: Iterable[Tensor]) -> Iterator[Tensor]:
    waiting: list[Any] = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(waiting)
    while waiting and len(seen) < NODES_MAX:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor):
            yield leaf
        for above, _ in node.next_functions:
            if above is not None and above not in seen:
                seen.add(above)
                waiting.append(above)


@torch.no_grad()
def _sample(tensor: Tensor) -> tuple[Tensor | None, bytes]:
    """Places all over ``tensor`` and the place of its largest gradient, and the values there."""
    try:
        size = tensor.numel()
        places = torch.arange(0, size, max(1, size // SAMPLED_ELEMENTS), device=tensor.device)
        if tensor.grad is not None and size:
            places = torch.cat([places, tensor.grad.abs().argmax().reshape(1)])
    except (RuntimeError, TypeError, NotImplementedError):  # a tensor without plain values
        return None, b""
    return places, _values(tensor, places)


@torch.no_grad()
def _values(tensor: Tensor, places: Tensor | None) -> bytes:
    if places is None:
        return b""
    try:
        return bytes(tensor.detach().flatten()[places].contiguous().cpu().view(torch.uint8).numpy())
    except (RuntimeError, TypeError, NotImplementedError):
        return b""
