"""Rows of a data set that are other ones at each read although every global generator has the same seed."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from steadytrain.survey.stored_rows import mark, places, read

GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
DEPTH_MAX, OBJECTS_MAX, ENTRIES_MAX = 4, 500, 64


def drawn_anew(loaders: Sequence[Any]) -> int | None:
    """A row that two reads with the same random numbers return differently, None if there is none.

    A data set that holds a generator of its own, or whose module does, is not judged: that one may be seeded. Nor is
    one whose memory was written in between.
    """
    for loader in loaders:
        dataset = loader.dataset
        if isinstance(dataset, IterableDataset) or not len(dataset) or _holds_generator(dataset):
            continue
        read(dataset, 0)  # may fill a cache
        second = [one.detach().clone() for one in read(dataset, 0)]
        before = [(name, mark(value)) for name, value in places(dataset, 0)]
        third = read(dataset, 0)
        same = len(second) == len(third) and all(map(torch.equal, second, third))
        if not same and before == [(name, mark(value)) for name, value in places(dataset, 0)]:
            return 0
    return None


def _holds_generator(dataset: Any) -> bool:
    """Whether a generator is reachable from ``dataset`` or stands in the module of one of its parts."""
    seen: set[int] = set()
    modules: set[str] = set()
    stack = [(dataset, 0)]
    while stack and len(seen) < OBJECTS_MAX:
        thing, depth = stack.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, GENERATORS):
            return True
        modules.add(getattr(thing, "__module__", None) or type(thing).__module__)
        if depth < DEPTH_MAX:
            stack += [(inner, depth + 1) for inner in _inside(thing)]
    known = (vars(sys.modules[name]) for name in modules if name in sys.modules and not _is_library(name))
    return any(isinstance(value, GENERATORS) for names in known for value in names.values())


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in ("builtins", "torch", "numpy", "random")


def _inside(thing: Any) -> Iterator[Any]:
    if isinstance(thing, Mapping):
        yield from list(thing.values())[:ENTRIES_MAX]
    elif isinstance(thing, (list, tuple)):
        yield from thing[:ENTRIES_MAX]
    elif hasattr(thing, "__dict__") and not isinstance(thing, (type, torch.Tensor, np.ndarray)):
        yield from vars(thing).values()
