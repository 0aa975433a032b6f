"""Finds the data set samples of each batch: it follows the sampler's indices to the inputs of the model call.

Loaders draw ahead of their workers, and trainers fetch ahead of their steps. So the loader's own batch numbers link
indices to a batch, and the content (some bytes of each tensor) links a batch to a model call. If a script changes all
tensors on the way, their order decides, as long as there were as many batches as calls.

Not followed: data sets without indices (iterable ones), loaders that return batches out of order, batches that are
already on a device when the loader returns them.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from steadytrain.capture.snapshots.digests import bytes_of
from steadytrain.capture.step.input_recorder import MicroBatch, named_tensors_in, tensors_in
from steadytrain.core.incident import Samples
from steadytrain.core.torch_private import DATASET, IN_ORDER, RECEIVED, SENT
from steadytrain.storage.recorded_samples import sharing_most

AHEAD_MAX = 4096
"""Index draws of one loader that still wait for their batch."""

RECENT_MAX = 64
"""Recent batches that a call may come from: trainers fetch all batches of an accumulated step at once."""

SAMPLES_MAX = 4096
TENSORS_MAX = 8
MARK_ELEMENTS = 32
SUBSETS_MAX = 8

Mark = tuple[tuple[int, ...], str, bytes]


@dataclass(frozen=True)
class Drawn:
    """A returned batch: the ``number``-th with gradients enabled, counted over all loaders."""

    number: int
    samples: Samples
    tensors: tuple[tuple[str, weakref.ref[Tensor]], ...]
    marks: frozenset[Mark]


class DrawnSamples:
    """Follows all loaders of a process. Only the thread that reads from them uses it."""

    def __init__(self) -> None:
        self._ahead: weakref.WeakKeyDictionary[Any, dict[int, tuple[int, ...]]] = weakref.WeakKeyDictionary()
        self._recent: deque[Drawn] = deque(maxlen=RECENT_MAX)
        self._given = 0
        self._calls = 0

    def drawn(self, iterator: Any, indices: Any) -> None:
        """The sampler of ``iterator``, an iterator of torch's DataLoader, returned ``indices``."""
        ahead = self._ahead.setdefault(iterator, {})
        found = _indices(indices)
        if found is not None and len(ahead) < AHEAD_MAX:
            ahead[SENT.on(iterator, 0)] = found

    def given(self, iterator: Any, batch: Any) -> Samples | None:
        """``iterator`` returned ``batch``. Returns its samples; None if unknown."""
        if not torch.is_grad_enabled():
            self._take(iterator)
            return None
        self._given += 1
        indices = self._take(iterator)
        if indices is None:
            return None
        tensors = dict(islice(named_tensors_in(batch), TENSORS_MAX))
        samples = _within(DATASET.of(iterator), indices)
        self._recent.append(
            Drawn(
                number=self._given,
                samples=samples,
                tensors=tuple((name, weakref.ref(tensor)) for name, tensor in tensors.items()),
                marks=frozenset(_marks(tensor for tensor in tensors.values() if tensor.device.type == "cpu")),
            )
        )
        return samples

    def called(self) -> None:
        """The script calls the model with gradients enabled."""
        self._calls += 1

    def samples_of(self, calls: Sequence[MicroBatch]) -> tuple[Samples, ...]:
        """The samples of the last model calls ``calls``, as far as they are known."""
        found = []
        for at, call in enumerate(calls):
            tensors = list(tensors_in((call.args, call.kwargs)))
            one = self._by_content(tensors)
            if one is None:
                tensors = []  # their rows may have another order
                one = self._by_order(self._calls - len(calls) + 1 + at)
            if one is not None:
                size = len(one.samples.indices)
                bad = {field: _bad_rows(held(), size) for field, held in one.tensors}
                rows = frozenset[int]().union(*bad.values(), *(_bad_rows(tensor, size) for tensor in tensors))
                fields = tuple(field for field, there in bad.items() if there)
                found.append(
                    replace(one.samples, batch=at, nonfinite_rows=tuple(sorted(rows)), nonfinite_fields=fields)
                )
        return tuple(found)

    def _take(self, iterator: Any) -> tuple[int, ...] | None:
        ahead = self._ahead.get(iterator)
        if not ahead:
            return None
        if not hasattr(iterator, RECEIVED.attribute):
            return ahead.pop(0, None)
        number = RECEIVED.of(iterator) - 1
        for older in [one for one in ahead if one < number or not IN_ORDER.on(iterator, True)]:
            del ahead[older]
        return ahead.pop(number, None)

    def _by_content(self, tensors: Sequence[Tensor]) -> Drawn | None:
        return sharing_most(frozenset(_marks(tensors)), ((one.marks, one) for one in self._recent))

    def _by_order(self, call: int) -> Drawn | None:
        if self._given != self._calls:
            return None
        return next((one for one in self._recent if one.number == call), None)


def _indices(indices: Any) -> tuple[int, ...] | None:
    """A copy of ``indices``; None if they are not integers or too many."""
    drawn = (indices,) if isinstance(indices, int) else indices
    if not isinstance(drawn, (list, tuple)) or not 0 < len(drawn) <= SAMPLES_MAX:
        return None
    if all(issubclass(kind, (int, np.integer)) for kind in set(map(type, drawn))):
        return tuple(map(int, drawn))
    return None


def _marks(tensors: Iterable[Tensor]) -> Iterable[Mark]:
    """Shape, dtype and some bytes of each tensor: enough to recognise it."""
    for tensor in tensors:
        if type(tensor) is not Tensor or tensor.layout != torch.strided or tensor.numel() < 2:
            continue
        if not tensor.is_contiguous():
            continue
        few = tensor.detach().view(-1)[:: max(1, tensor.numel() // MARK_ELEMENTS)]
        yield tuple(tensor.shape), str(tensor.dtype), bytes_of(few.cpu().contiguous()).tobytes()


def _within(dataset: Any, indices: tuple[int, ...]) -> Samples:
    """The samples as indices into ``dataset``; for a ``Subset``, into its underlying data set."""
    found = indices
    for _ in range(SUBSETS_MAX):
        if type(dataset) is not Subset:
            break
        found = tuple(int(dataset.indices[index]) for index in found)
        dataset = dataset.dataset
    return Samples(0, type(dataset).__name__, found)


def _bad_rows(tensor: Tensor | None, rows: int) -> frozenset[int]:
    """The rows of ``tensor`` that hold NaN or Inf; none if it does not have exactly ``rows`` rows."""
    if tensor is None or not tensor.is_floating_point() or tensor.layout != torch.strided:
        return frozenset()
    if not tensor.dim() or len(tensor) != rows:
        return frozenset()
    finite = tensor.detach().reshape(rows, -1).isfinite().all(1)
    return frozenset(row for row, good in enumerate(finite.tolist()) if not good)
