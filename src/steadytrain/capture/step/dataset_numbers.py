"""Data sets by number: they are told apart by the order in which the script first reads from them."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any

from steadytrain.core.torch_private import DATASET

HELD_MAX = 16
"""Data sets that cannot be referred to weakly (a list of samples) and so are held: the last ones that were read."""


class DatasetNumbers:
    """Knows each data set as long as it lives; another one at the same address gets a number of its own."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[Callable[[], Any], int]] = {}
        self._held: OrderedDict[int, Any] = OrderedDict()
        self._next = count()

    def number_of(self, iterator: Any) -> int:
        """The number of the data set that ``iterator``, one of torch's DataLoader, reads from."""
        dataset = DATASET.on(iterator)
        key = id(dataset)
        known, number = self._numbers.get(key, (None, -1))
        if known is None or known() is not dataset:
            number = next(self._next)
            self._numbers[key] = self._reference(dataset), number
        if key in self._held:
            self._held.move_to_end(key)
        return number

    def key_of(self, number: int) -> int | None:
        """The ``id`` of the data set with this number, None of one that is gone."""
        return next((key for key, (held, one) in self._numbers.items() if one == number), None)

    def rows_of(self, number: int) -> int:
        """How many rows the data set with this number has; 0 of one that is gone or has no length."""
        dataset = next((held() for held, one in self._numbers.values() if one == number), None)
        try:
            return len(dataset) if dataset is not None else 0
        except (TypeError, NotImplementedError):
            return 0

    def _reference(self, dataset: Any) -> Callable[[], Any]:
        key = id(dataset)
        try:
            return weakref.ref(dataset)
        except TypeError:
            self._held[key] = dataset
            if len(self._held) > HELD_MAX:
                self._held.popitem(last=False)
            return lambda: self._held.get(key)
