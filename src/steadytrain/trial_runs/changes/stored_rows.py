"""Data sets whose rows stay as they are."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from types import FunctionType
from typing import Any, final

from torch.utils.data import DataLoader, Subset

from steadytrain.survey.stored_rows import kept
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import Launched


@final
@dataclass
class KeepRows(LiveChange):
    """Rows of a map-style data set are put back after each read, if the read changed them."""

    is_early = True
    own_batches = True
    nothing = "no row of a data set changed when it was read"

    def early(self, process: Launched) -> None:
        original = DataLoader.__iter__
        wrapped: set[type] = set()

        def begins(loader: Any) -> Any:
            dataset = loader.dataset
            while isinstance(dataset, Subset):
                dataset = dataset.dataset
            kind = type(dataset)
            of_script = isinstance(vars(kind).get("__getitem__"), FunctionType)  # a list has one that stays as it is
            if kind not in wrapped and of_script and not kind.__module__.startswith("torch."):
                wrapped.add(kind)
                kind.__getitem__ = self._reading(kind.__getitem__)
            return original(loader)

        DataLoader.__iter__ = begins  # type: ignore[method-assign]

    def _reading(self, original: Any) -> Any:
        @functools.wraps(original)
        def read(dataset: Any, row: Any) -> Any:
            put_back = kept(dataset, [int(row)])
            item = copy.deepcopy(original(dataset, row))
            if put_back():
                self.touch()
            return item

        return read
