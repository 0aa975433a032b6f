"""Watches an embedding table and an output head that start equal in two tensors: do they stay equal?"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import plain_name

PAIRS_MAX = 8

Held = tuple[str, weakref.ref[Tensor]]


class TiedTables:
    """Finds the equal pairs in the models under ``roots``. Construct it before the first update."""

    @torch.no_grad()
    def __init__(self, roots: Iterable[nn.Module]) -> None:
        self._pairs: list[tuple[Held, Held]] = []
        for root in roots:
            tables = {id(m.weight) for m in root.modules() if isinstance(m, nn.Embedding)}
            named = [(plain_name(name), one) for name, one in root.named_parameters() if _may_be_one(one)]
            heads = [(name, one) for name, one in named if id(one) not in tables]
            for name, table in named if tables else ():
                for other, head in heads if id(table) in tables else ():
                    if _are_alike(table, head):
                        self._pairs.append(((name, weakref.ref(table)), (other, weakref.ref(head))))
        del self._pairs[PAIRS_MAX:]

    @torch.no_grad()
    def rows(self) -> Iterator[tuple[str, float]]:
        """``untied:TABLE and HEAD`` is 1 if the two are no longer equal, else 0."""
        for (name, table), (other, head) in self._pairs:
            one, two = table(), head()
            if one is not None and two is not None and one.shape == two.shape:
                yield f"untied:{name} and {other}", float(not torch.equal(one, two))


def _may_be_one(one: Tensor) -> bool:
    return one.dim() == 2 and one.requires_grad and one.is_floating_point() and type(one) is nn.Parameter


def _are_alike(table: Tensor, head: Tensor) -> bool:
    """Whether two separate tensors hold equal values. Tensors filled with one number do not count as copies."""
    same = table.shape == head.shape and table.device == head.device and table.dtype == head.dtype
    if not same or table.data_ptr() == head.data_ptr() or table.numel() < 2:
        return False
    return torch.equal(table, head) and bool((table != table[0, 0]).any())
