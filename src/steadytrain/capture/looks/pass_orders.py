"""Compares the order of the samples from pass to pass, and the batches of a loader's workers with each other.

A pass is one iteration over a loader. Only passes whose batches the optimizer steps follow are compared: an evaluation
makes no steps between its batches. Each read is handed to ``OverwrittenData``, too. Not here: whether a repeated order
is meant.
"""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from steadytrain.capture.looks.overwritten_data import OverwrittenData
from steadytrain.capture.looks.repeated_inputs import digest_of
from steadytrain.core.torch_private import DATASET, INDEX_SAMPLER, SENT, WORKERS

BATCHES_COMPARED = 16
SAMPLES_MIN, BATCHES_MIN = 8, 2
"""Samples and batches that have to agree: fewer may agree by chance, and the order within one batch does not matter."""

STEPS_MIN = 2
WORKER_BATCHES_MIN, WORKER_BATCHES_MAX = 8, 64
KNOWN_MAX = 16
SHUFFLERS = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)

Key = tuple[int, str]


@dataclass
class _Pass:
    """One iteration over a loader; ``drawn`` holds a hash of the samples of each of its first batches."""

    key: Key
    shuffles: bool
    workers: int
    earlier: _Pass | None
    drawn: list[int] = field(default_factory=list)
    samples: int = 0
    ascends: bool = True
    last_index: Any = -1
    digests: list[bytes] = field(default_factory=list)
    dataset: str = ""
    steps: int = 0
    stream: str = ""
    repeats: int = 1
    judged: bool = False
    mixed: bool = False

    @property
    def trains(self) -> bool:
        return self.steps >= STEPS_MIN


class PassOrders:
    """Follows all loaders of a process."""

    def __init__(self) -> None:
        self._now: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()
        self._newest: OrderedDict[Key, _Pass] = OrderedDict()
        self._since: dict[int, _Pass] = {}
        self._told: set[str] = set()
        self.begun = 0
        """The passes over data that have begun."""

        self._undrawn: dict[str, tuple[int, int]] = {}
        self._overwritten = OverwrittenData()

    def drawn(self, iterator: Any, dataset: int, indices: Any) -> None:
        """The sampler of ``iterator`` drew ``indices`` from the ``dataset``-th data set."""
        if not torch.is_grad_enabled():
            return
        self._overwritten.drawn(iterator, dataset, indices)
        now = self._pass(iterator, dataset, begins=SENT.on(iterator, -1) == 0)
        if len(now.drawn) >= BATCHES_COMPARED:
            return
        listed = tuple(indices) if isinstance(indices, (list, tuple)) else (indices,)
        now.drawn.append(hash(listed))
        if all(isinstance(one, int) for one in listed):
            now.samples += len(listed)
            now.ascends &= all(one < other for one, other in zip((now.last_index, *listed), listed, strict=False))
            now.last_index = listed[-1] if listed else now.last_index

    def given(self, iterator: Any, dataset: int, batch: Any) -> None:
        """``iterator`` gave ``batch``."""
        if not torch.is_grad_enabled():
            return
        self._overwritten.given(iterator, dataset, batch)
        now = self._pass(iterator, dataset, begins=False)
        newest = self._newest.get(now.key, now)
        if newest is not now:
            now.mixed = newest.mixed = True  # two loaders side by side, perhaps with one seed on purpose
        self._since[id(now)] = now
        if now.workers > 1 and len(now.digests) < _compared(now.workers) and now.dataset not in self._told:
            now.digests.append(digest_of(batch))

    def break_off(self) -> None:
        """Batches will pass that are not looked at: no pass so far is compared with a later one."""
        self._now.clear()
        self._newest.clear()
        self._since = {}
        self._overwritten.break_off()

    @property
    def shuffler(self) -> str:
        """The class of the sampler of the newest pass that trains, if it shuffles."""
        training = [one for one in self._newest.values() if one.trains]
        return training[-1].key[1] if training and training[-1].shuffles else ""

    def stepped(self, stream: str) -> None:
        """An update of ``stream`` followed the batches since the last one."""
        for one in self._since.values():
            one.steps, one.stream = one.steps + 1, stream
        self._since = {}

    def rows(self, stream: str) -> Iterator[tuple[str, float]]:
        """The rows before an update of ``stream``.

        ``same-order:SAMPLER`` is the number of passes in a row that drew the same samples in the same order, reported
        from the second on; ``shuffles:SAMPLER`` is 1 if the sampler shuffles, 0 if that is not known. Ascending orders
        are not reported. ``equal-workers:DATASET`` is the number of workers that all give the same batches.
        ``drawable-rows:SAMPLER`` is the number of weights of a weighted sampler that are fewer than the rows of its
        data set, ``rows-of:SAMPLER``. Further rows are those of :class:`OverwrittenData`.
        """
        for sampler, (weights, rows) in self._undrawn.items():
            yield f"drawable-rows:{sampler}", float(weights)
            yield f"rows-of:{sampler}", float(rows)
        yield from self._overwritten.rows()
        for one in self._since.values():
            if one.trains and not one.judged and one.stream == stream and not one.mixed:
                yield from self._of_order(one)
            if one.trains and len(one.digests) >= _compared(one.workers) and one.dataset not in self._told:
                yield from self._of_workers(one)

    def _of_order(self, one: _Pass) -> Iterator[tuple[str, float]]:
        earlier = one.earlier
        if earlier is None or not earlier.trains or earlier.stream != one.stream:
            return
        if len(one.drawn) < len(earlier.drawn):
            return  # not yet
        one.judged, one.earlier = True, None
        if one.samples < SAMPLES_MIN or len(one.drawn) < BATCHES_MIN or one.ascends or one.drawn != earlier.drawn:
            return
        one.repeats = earlier.repeats + 1
        yield f"same-order:{one.key[1]}", float(one.repeats)
        yield f"shuffles:{one.key[1]}", float(one.shuffles)

    def _of_workers(self, one: _Pass) -> Iterator[tuple[str, float]]:
        counts, self._told = Counter(one.digests), self._told | {one.dataset}
        if b"" not in counts and len(counts) > 1 and set(counts.values()) == {one.workers}:
            yield f"equal-workers:{one.dataset}", float(one.workers)

    def _count_weights(self, sampler: WeightedRandomSampler, dataset: Any) -> None:
        """A weight is for a row: rows beyond the last weight are never drawn."""
        weights, rows = len(sampler.weights), len(dataset) if hasattr(dataset, "__len__") else 0
        if 0 < weights < rows:
            self._undrawn[type(sampler).__name__] = weights, rows

    def _pass(self, iterator: Any, dataset: int, *, begins: bool) -> _Pass:
        known = self._now.get(iterator)
        if known is not None and not (begins and known.drawn):  # workers that persist keep their iterator
            return known
        batches = INDEX_SAMPLER.on(iterator)
        sampler = getattr(batches, "sampler", batches)
        key = dataset, type(sampler).__name__
        shuffles = isinstance(sampler, SHUFFLERS) or getattr(sampler, "shuffle", None) is True
        if isinstance(sampler, WeightedRandomSampler):
            self._count_weights(sampler, DATASET.on(iterator))
        self.begun += 1
        earlier = self._newest.pop(key, None)
        now = _Pass(key, shuffles, WORKERS.on(iterator, 0), earlier, dataset=type(DATASET.on(iterator)).__name__)
        if earlier is not None:
            earlier.earlier, now.mixed = None, earlier.mixed
        self._now[iterator] = self._newest[key] = now
        if len(self._newest) > KNOWN_MAX:
            self._newest.popitem(last=False)
        return now


def _compared(workers: int) -> int:
    """How many batches of ``workers`` are compared: whole turns of all of them, at least two."""
    turns = max(2, -(-WORKER_BATCHES_MIN // max(1, workers)))
    return min(turns * workers, WORKER_BATCHES_MAX // max(1, workers) * workers) or 2 * workers
