"""Stored rows that the script overwrites while it trains: by reading them from a data set, or by writing into a slice.

A data set that hands out views of its storage, an augmentation or a first layer that works in place, change the rows
that the next epoch reads.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, Subset

from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.core.torch_private import VERSION

READ_ROWS, ATTRIBUTES_MAX, NESTED_MAX = 3, 16, 4
HASHED_BYTES_MAX = 1 << 26
HELD_MAX, STEPS_MIN = 8, 2

REPLACES = frozenset({"copy_", "fill_", "zero_", "__setitem__", "normal_", "uniform_", "random_", "set_"})
"""Writes that do not depend on what was there: a buffer that each step fills anew."""

CHANGES = frozenset(
    {
        *("mul_", "add_", "sub_", "div_", "pow_", "clamp_", "relu_", "exp_", "neg_", "sqrt_", "tanh_", "sigmoid_"),
        *("__imul__", "__iadd__", "__isub__", "__itruediv__", "masked_fill_", "lerp_", "addcmul_", "abs_", "log_"),
        *("leaky_relu_", "elu_", "clamp_min_", "clamp_max_", "dropout_"),
    }
)
"""Writes that depend on what was there."""

Place = tuple[str, Any]
"""The name of an attribute, and what it holds."""


class Writes:
    """Follows writes into rows that the model is trained on, where later steps get the same memory again.

    Rows are what the model gets as inputs, or a slice of a larger tensor with as many elements. The first ones are
    held, so that no other tensor can take their memory.
    """

    def __init__(self) -> None:
        self._held: dict[int, Tensor] = {}
        self._sizes: set[int] = set()
        self._used: dict[int, set[int]] = {}
        self._written: dict[int, dict[int, str]] = {}
        self._filled: set[int] = set()

    def given(self, step: int, inputs: Iterator[tuple[str, Tensor]]) -> None:
        """The model gets ``inputs``."""
        for _, value in inputs:
            if value.is_floating_point() and value.numel():
                self._sizes.add(value.numel())
                self._use(value, step)

    def saw(self, name: str, value: Any, line: str, step: int) -> None:
        """A function of this name wrote into ``value``."""
        if not isinstance(value, Tensor) or value.requires_grad or not value.is_floating_point():
            return
        key = value.untyped_storage().data_ptr()
        if name in REPLACES:
            self._filled.add(key)
            return
        is_slice = value.numel() * value.element_size() < value.untyped_storage().nbytes()
        if is_slice and value.numel() in self._sizes:
            self._use(value, step)
        if key in self._held:
            self._written.setdefault(key, {}).setdefault(step, line)

    def found(self) -> dict[str, Any] | None:
        """``{line, steps}`` of a write into rows that other steps use again, None if there is none."""
        for key, steps in self._written.items():
            if key not in self._filled and min(len(steps), len(self._used[key])) >= STEPS_MIN:
                return {"line": steps[min(steps)], "steps": len(steps)}
        return None

    def _use(self, value: Tensor, step: int) -> None:
        key = value.untyped_storage().data_ptr()
        if key not in self._held and len(self._held) < HELD_MAX:
            self._held[key] = value
        if key in self._held:
            self._used.setdefault(key, set()).add(step)


def writes(name: str, given: Mapping[str, Any]) -> bool:
    """Whether a call of this name writes into its first argument."""
    return name in CHANGES or name in REPLACES or given.get("inplace") is True


def changed_by_reading(loaders: Sequence[Any]) -> dict[str, Any] | None:
    """``{attribute, row}`` of a data set whose row is another one after it was read, None if there is none.

    A row is read three times with the same random numbers. The first read may fill a cache. If the third returns
    something else than the second, and memory of the data set was written in between, reading changes the row.
    """
    for loader in loaders:
        dataset = loader.dataset
        if isinstance(dataset, IterableDataset) or (loader.num_workers and not loader.persistent_workers):
            continue  # a worker's copy ends with its epoch
        count = len(dataset)
        for row in sorted({round(at * (count - 1) / (READ_ROWS - 1)) for at in range(READ_ROWS)} if count else ()):
            found = _read_thrice(dataset, row)
            if found is not None:
                return {"attribute": found, "row": row}
    return None


def _read_thrice(dataset: Any, row: int) -> str | None:
    read(dataset, row)
    second = [value.detach().clone() for value in read(dataset, row)]
    marks = {name: mark(value) for name, value in places(dataset, row)}
    third = read(dataset, row)
    if len(second) == len(third) and all(map(torch.equal, second, third)):
        return None
    return next((name for name, value in places(dataset, row) if marks.get(name) != mark(value)), None)


def read(dataset: Any, row: int) -> list[Tensor]:
    """The floating-point tensors of one row, with the same random numbers each time."""
    torch.manual_seed(row)
    random.seed(row)
    np.random.seed(row)
    item = dataset[row]
    arrays = [torch.from_numpy(one) for one in _arrays(item)]
    return [one for one in (*tensors_in(item), *arrays) if one.is_floating_point() or one.dtype == torch.uint8]


def _arrays(item: Any) -> list[Any]:
    parts = item.values() if isinstance(item, Mapping) else item if isinstance(item, (list, tuple)) else (item,)
    return [one for one in parts if isinstance(one, np.ndarray) and one.dtype.kind in "fu" and one.dtype.itemsize != 2]


def places(dataset: Any, row: int) -> Iterator[Place]:
    """The memory that may hold ``row``: tensors and arrays of the data set, and this element of its lists."""
    for _ in range(NESTED_MAX):
        if not isinstance(dataset, Subset):
            break
        dataset, row = dataset.dataset, int(dataset.indices[row])
    for name, value in list(getattr(dataset, "__dict__", {}).items())[:ATTRIBUTES_MAX]:
        if isinstance(value, dict) and row in value:
            item = value[row]
            parts = item.values() if isinstance(item, Mapping) else item if isinstance(item, (list, tuple)) else (item,)
            yield from ((name, one) for one in list(parts)[:ATTRIBUTES_MAX] if isinstance(one, (Tensor, np.ndarray)))
            continue
        inside = value if isinstance(value, (list, tuple)) else ()
        if isinstance(value, (Tensor, np.ndarray)):
            yield name, value
        elif len(inside) <= ATTRIBUTES_MAX:
            yield from ((name, one) for one in inside if isinstance(one, (Tensor, np.ndarray)))
        elif row < len(inside) and isinstance(inside[row], (Tensor, np.ndarray)):
            yield name, inside[row]


def mark(value: Any) -> object:
    """What changes with the memory: the count of writes, or a hash of the values."""
    if isinstance(value, Tensor):
        return VERSION.of(value)
    if value.nbytes > HASHED_BYTES_MAX or value.dtype == object:
        return None
    return hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).digest()


def kept(dataset: Any, rows: Sequence[int]) -> Callable[[], bool]:
    """Keeps copies of these rows. The function returned puts them back, and says whether any had changed."""
    copies = [(value, at, _copy(value, at)) for row in rows for value, at in _cells(dataset, row)]

    def put_back() -> bool:
        changed = False
        for value, at, old in copies:
            now = value if at is None else value[at]
            if not bool((torch.as_tensor(now) == torch.as_tensor(old)).all()):
                changed = True
                with torch.no_grad():
                    value[... if at is None else at] = old
        return changed

    return put_back


def _cells(dataset: Any, row: int) -> Iterator[tuple[Any, int | None]]:
    """The memory of one row: an array and the place in it, or a whole array of a list."""
    inner: Any = dataset
    place = row
    for _ in range(NESTED_MAX):
        if not isinstance(inner, Subset):
            break
        inner, place = inner.dataset, int(inner.indices[place])
    count = len(inner)
    for _, value in places(inner, place):
        if value.ndim and len(value) == count:
            yield value, place
        elif value.ndim:
            yield value, None


def _copy(value: Any, at: int | None) -> Any:
    part = value if at is None else value[at]
    return part.detach().clone() if isinstance(part, Tensor) else copy.deepcopy(part)
