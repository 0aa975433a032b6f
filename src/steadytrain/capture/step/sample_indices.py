"""Finds the data set samples of each batch: it follows the sampler's indices to the inputs of the model call.

Loaders draw ahead of their workers, and trainers fetch ahead of their steps. So the loader's own batch numbers link
indices to a batch, and the content (some bytes of each tensor) links a batch to a model call. If a script changes all
tensors on the way, their order decides, as long as there were as many batches as calls.

A bad row counts as the data set's if the loader returned it: its tensor is still as it was returned, or the model was
called with one that equals it. It came in later if each tensor of the loader that could have held it is known.

Not followed: data sets without indices (iterable ones), loaders that return batches out of order, batches that are
already on a device when the loader returns them.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from steadytrain.capture.snapshots.digests import bytes_of
from steadytrain.capture.step.input_recorder import MicroBatch, named_tensors_in, tensors_in
from steadytrain.capture.step.late_lines import lines_before
from steadytrain.core.incident import Samples
from steadytrain.core.torch_private import DATASET, IN_ORDER, RECEIVED, SENT, VERSION
from steadytrain.storage.recorded_samples import sharing_most

AHEAD_MAX = 4096
"""Index draws of one loader that still wait for their batch."""

RECENT_MAX = 64
"""Recent batches that a call may come from: trainers fetch all batches of an accumulated step at once."""

SAMPLES_MAX = 4096
TENSORS_MAX = 8
GRAPH_OF = "batch"
"""Name of the field that holds the graph of each node, in a batch of PyTorch Geometric."""

MARK_ELEMENTS = 32
SUBSETS_MAX = 8

Mark = tuple[tuple[int, ...], str, bytes]


@dataclass(frozen=True)
class Field:
    """One tensor of a returned batch, as it was then. ``mark`` is None on a device, and where it has too few values."""

    name: str
    tensor: weakref.ref[Tensor]
    version: int
    floating: bool
    mark: Mark | None

    def held(self) -> Tensor | None:
        """The tensor, if the script still holds it unchanged."""
        tensor = self.tensor()
        return tensor if tensor is not None and _version(tensor) == self.version else None

    @property
    def gone(self) -> bool:
        """Whether the script no longer holds it, so that a copy of it is the only witness."""
        return self.tensor() is None


@dataclass(frozen=True)
class Drawn:
    """A returned batch: the ``number``-th with gradients enabled, counted over all loaders.

    ``graph_of`` is the graph of each node in a batch of graphs.
    """

    number: int
    samples: Samples
    fields: tuple[Field, ...]
    graph_of: weakref.ref[Tensor] | None = None

    @property
    def marks(self) -> frozenset[Mark]:
        return frozenset(field.mark for field in self.fields if field.mark is not None)

    def with_bad_rows(self, given: Sequence[Tensor], batch: int) -> Samples:
        """The samples, with the rows that are not finite: in what was returned, and in ``given`` to the model alone."""
        size = len(self.samples.indices)
        graphs = self.graph_of() if self.graph_of is not None else None
        bad = {field.name: _bad_rows(field.held(), size, graphs) for field in self.fields}
        copied = {field.mark for field in self.fields if field.gone and field.mark is not None}
        marks = frozenset(_marks(given))
        unseen = any(field.gone and field.floating and field.mark not in marks for field in self.fields)
        there, later = frozenset[int]().union(*bad.values()), frozenset[int]()
        for tensor in (*given, *(one for field in self.fields if (one := field.tensor()) is not None)):
            rows = _bad_rows(tensor, size, graphs)
            if rows and _mark(tensor) in copied:
                there |= rows
            later |= rows
        fields = tuple(name for name, rows in bad.items() if rows)
        return replace(
            self.samples,
            batch=batch,
            nonfinite_rows=tuple(sorted(there)),
            nonfinite_fields=fields,
            later_rows=() if unseen else tuple(sorted(later - there)),
        )

    def with_later_rows(self, given: Sequence[Tensor], batch: int) -> Samples:
        """The samples of a batch whose tensors were all changed on the way, by its place in the order of batches.

        The rows ``given`` to the model may have another order: a bad one is later if nothing returned was bad.
        """
        found = self.with_bad_rows((), batch)
        known = all(field.held() is not None for field in self.fields if field.floating)
        if found.nonfinite_rows or not known or len(self.fields) == TENSORS_MAX:
            return found
        later = frozenset[int]().union(*(_bad_rows(tensor, len(self.samples.indices)) for tensor in given))
        return replace(found, later_rows=tuple(sorted(later.union(found.later_rows))))


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
        fields = fields_of(batch)
        samples = _within(DATASET.of(iterator), indices)
        graph_of = fields.get(GRAPH_OF) if fields is not None and not isinstance(batch, Mapping) else None
        tensors = islice(named_tensors_in(batch if fields is None else fields), TENSORS_MAX)
        self._recent.append(
            Drawn(
                number=self._given,
                samples=samples,
                fields=tuple(_field(name, tensor) for name, tensor in tensors),
                graph_of=weakref.ref(graph_of) if isinstance(graph_of, Tensor) else None,
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
            one, same = self._by_content(tensors), True
            if one is None:
                one, same = self._by_order(self._calls - len(calls) + 1 + at), False
            if one is not None:
                samples = one.with_bad_rows(tensors, at) if same else one.with_later_rows(tensors, at)
                found.append(replace(samples, later_lines=lines_before(call)) if samples.later_rows else samples)
        return tuple(found)

    def samples_of_earlier(self, calls: Sequence[MicroBatch]) -> tuple[Samples, ...]:
        """The samples of the model calls of an earlier step: only those that the content of their batch shows."""
        found = []
        for at, call in enumerate(calls):
            tensors = list(tensors_in((call.args, call.kwargs)))
            one = self._by_content(tensors)
            if one is not None:
                rows = frozenset[int]().union(*(_bad_rows(tensor, len(one.samples.indices)) for tensor in tensors))
                found.append(replace(one.samples, batch=at, nonfinite_rows=tuple(sorted(rows))))
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


def fields_of(batch: Any) -> Mapping[str, Any] | None:
    """The fields of a batch of graphs, as PyTorch Geometric's loader returns it; None for anything else."""
    store = getattr(batch, "_store", None)
    fields = getattr(store, "_mapping", None)
    return fields if isinstance(fields, Mapping) and GRAPH_OF in fields else None


def _field(name: str, tensor: Tensor) -> Field:
    mark = _mark(tensor) if tensor.device.type == "cpu" else None
    return Field(name, weakref.ref(tensor), _version(tensor), tensor.is_floating_point(), mark)


def _version(tensor: Tensor) -> int:
    """Counts changes in place. A tensor of the inference mode has no count."""
    return 0 if tensor.is_inference() else int(VERSION.of(tensor))


def _marks(tensors: Iterable[Tensor]) -> Iterable[Mark]:
    return (mark for mark in map(_mark, tensors) if mark is not None)


def _mark(tensor: Tensor) -> Mark | None:
    """Shape, dtype and some bytes of a tensor: enough to recognise it."""
    if type(tensor) is not Tensor or tensor.is_nested or tensor.layout != torch.strided or tensor.numel() < 2:
        return None
    if not tensor.is_contiguous():
        return None
    few = tensor.detach().view(-1)[:: max(1, tensor.numel() // MARK_ELEMENTS)]
    return tuple(tensor.shape), str(tensor.dtype), bytes_of(few.cpu().contiguous()).tobytes()


def _within(dataset: Any, indices: tuple[int, ...]) -> Samples:
    """The samples as indices into ``dataset``; for a ``Subset``, into its underlying data set."""
    found = indices
    for _ in range(SUBSETS_MAX):
        if type(dataset) is not Subset:
            break
        found = tuple(int(dataset.indices[index]) for index in found)
        dataset = dataset.dataset
    return Samples(0, type(dataset).__name__, found)


def _bad_rows(tensor: Tensor | None, rows: int, graph_of: Tensor | None = None) -> frozenset[int]:
    """The rows of ``tensor`` that hold NaN or Inf. None if it does not have exactly ``rows`` rows.

    With ``graph_of``, a tensor with one row a node shows its graphs. A nested tensor shows its parts.
    """
    if tensor is None or not tensor.is_floating_point() or not tensor.dim():
        return frozenset()
    if tensor.is_nested:
        parts = tensor.detach().unbind()
        return frozenset(row for row, part in enumerate(parts) if len(parts) == rows and not part.isfinite().all())
    if tensor.layout != torch.strided or not len(tensor):
        return frozenset()
    of_nodes = graph_of is not None and len(graph_of) == len(tensor)
    if not of_nodes and len(tensor) != rows:
        return frozenset()
    bad = (~tensor.detach().reshape(len(tensor), -1).isfinite().all(1)).nonzero().flatten().tolist()
    return frozenset(bad) if graph_of is None or not of_nodes else frozenset(graph_of[bad].tolist())
