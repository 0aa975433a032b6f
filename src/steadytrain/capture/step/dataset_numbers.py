"""Numbers the data sets in the order in which the script first reads from them."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any

from steadytrain.core.torch_private import DATASET

HELD_MAX = 16
"""Data sets held by a strong reference, because they allow no weak one (a list of samples): the last ones read."""


class DatasetNumbers:
    """Keeps each data set's number while it lives. A new data set at the same address gets a new number."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[Callable[[], Any], int]] = {}
        self._held: OrderedDict[int, Any] = OrderedDict()
        self._next = count()

    def number_of(self, iterator: Any) -> int:
        """The number of the data set that ``iterator``, an iterator of torch's DataLoader, reads from."""
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
        """The ``id`` of the data set with this number; None if it no longer exists."""
        return next((key for key, (held, one) in self._numbers.items() if one == number), None)

    def rows_of(self, number: int) -> int:
        """The number of rows of the data set with this number; 0 if it no longer exists or has no length."""
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
