"""Wraps what loaders of the script read with: the ``__getitem__`` of its data sets, and its collate functions."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from torch.utils.data import DataLoader, Subset

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def wrap_reads(rows: Wrap, batches: Wrap | None = None) -> None:
    """From here on each loader that begins reads its data set with ``rows(__getitem__)``, and puts its batches together
    with ``batches(collate_fn)`` if that is given and the function is the script's. What torch and Python define stays.
    """
    original = DataLoader.__iter__
    wrapped: set[type] = set()

    def begins(loader: Any) -> Any:
        dataset = loader.dataset
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        kind = type(dataset)
        of_script = isinstance(vars(kind).get("__getitem__"), FunctionType)  # a list has one that stays as it is
        if kind not in wrapped and of_script and not _is_of_torch(kind):
            wrapped.add(kind)
            kind.__getitem__ = rows(kind.__getitem__)
        collate = loader.collate_fn
        new = callable(collate) and not hasattr(collate, "__wrapped__")
        if batches is not None and new and not _is_of_torch(collate):
            loader.collate_fn = batches(collate)
        return original(loader)

    DataLoader.__iter__ = begins  # type: ignore[method-assign]


def _is_of_torch(defined: Any) -> bool:
    return str(getattr(defined, "__module__", None) or type(defined).__module__).startswith("torch.")
