"""Compares what a data set holds of some samples before and after a loader without workers reads them.

Reading should leave the stored sample as it was. A cache that is filled by the first read is no change: a sample is
compared from its second read on. A store that keeps the newest view of a sample changes at each read as well, but its
changes do not pile up: so either the distance from the sample as it was must grow from read to read, or a read must
scale and shift it. Not here: loaders with workers, whose copies of the data set no other process sees.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, strided
from torch.utils.data import Dataset, Subset

from steadytrain.capture.step.input_recorder import tensors_in
from steadytrain.core.model import FloatArray
from steadytrain.core.own_errors import own
from steadytrain.core.torch_private import DATASET, WORKERS

Row = NDArray[Any]

FOLLOWED_MAX, COMPARED_MAX = 16, 128
"""Samples of a data set that are followed, and reads of them that are compared."""

DRAWN_MAX = 4096
STORES_MAX, DEPTH_MAX, FEW_MAX = 8, 3, 8
"""Attributes of a data set that are compared, data sets within each other, and tensors of one tuple."""

ELEMENTS_MIN, ELEMENTS_MAX = 8, 1 << 16
"""Smaller rows are counters and labels. Of a larger one a part is compared, evenly spaced."""

WORDS = np.dtype(np.uint32)
"""A list of words is followed by checksums of this type. What is made of them, ids, is looked up in no batch."""

WINDOW = 16
"""Rows of a table with few values each that are followed together, as a series is read in windows."""

READS_MIN, ROWS_MIN = 8, 4
"""Changed reads, and samples that two reads changed, before anything is said."""

TENSORS_MAX, SCANNED_MAX = 4, 1 << 20
"""Tensors of a batch, and elements of each, among which a stored row is looked for."""

GROWTH_MIN = 1.25
"""How far the samples must have moved from where they were, over how far the first changed read moved them."""

SCALED_MIN = 0.99999
"""Correlation of a sample before and after, from which it was scaled or shifted as a whole."""


@dataclass
class _Sample:
    """One stored sample: as it was after its first read, and the distances from it after reads that changed it."""

    first: Row
    distances: list[float] = field(default_factory=list)
    scaled: int = 0


@dataclass
class _Followed:
    """What is followed of one data set. ``samples`` are by place and index, ``before`` those of the read under way, and
    ``places`` the places of these in what was drawn."""

    name: str
    reads: dict[int, int] = field(default_factory=dict)
    samples: dict[tuple[str, int], _Sample] = field(default_factory=dict)
    before: dict[tuple[str, int], Row] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    compared: int = 0

    def let_go(self) -> None:
        """What was read cannot be followed: leave the data set alone."""
        self.compared, self.before = COMPARED_MAX, {}


class OverwrittenData:
    """Follows the data sets of a process."""

    def __init__(self) -> None:
        self._followed: dict[int, _Followed] = {}
        self._news: dict[str, float] = {}

    def drawn(self, iterator: Any, number: int, indices: Any) -> None:
        """The samples ``indices`` of the ``number``-th data set are about to be read."""
        if WORKERS.on(iterator, 0) or not isinstance(indices, (list, tuple)) or len(indices) > DRAWN_MAX:
            return
        dataset = DATASET.on(iterator)
        known = self._followed.get(number)
        if known is None:
            known = self._followed[number] = _Followed(type(_innermost(dataset)).__name__)
        if known.compared >= COMPARED_MAX:
            return
        known.before, known.places = {}, {}
        for place, index in enumerate(indices):
            if type(index) is int and (index in known.reads or len(known.reads) < FOLLOWED_MAX):
                known.reads[index] = known.reads.get(index, 0) + 1
                if known.reads[index] > 1:
                    known.places[index] = place
                    try:
                        known.before.update(_rows(dataset, index))
                    except own(Exception):  # a data set of the script's own kind
                        known.let_go()
                        return

    def given(self, iterator: Any, number: int, batch: Any) -> None:
        """They were read, and ``batch`` was made of them."""
        known = self._followed.get(number)
        if known is None or not known.before:
            return
        before, known.before = known.before, {}
        dataset = DATASET.on(iterator)
        for index in dict.fromkeys(index for _, index in before):
            try:
                after = dict(_rows(dataset, index))
            except own(Exception):  # as above
                known.let_go()
                return
            known.compared += 1
            for at in [at for at in before if at[1] == index and at in after]:
                if before[at].tobytes() == after[at].tobytes():
                    continue
                if after[at].dtype == WORDS or _is_part_of(batch, after[at], known.places.get(index, 0)):
                    _compare(known.samples.setdefault(at, _Sample(before[at])), before[at], after[at])
        for place in {place for place, _ in before}:
            changed = _changed_reads([one for (where, _), one in known.samples.items() if where == place])
            if changed:
                self._news[f"{known.name}.{place}"] = float(changed)

    def break_off(self) -> None:
        """Reads will pass that are not looked at."""
        for known in self._followed.values():
            known.before = {}

    def rows(self) -> Iterator[tuple[str, float]]:
        """``overwritten-data:CLASS.PLACE`` is the number of reads that changed the stored sample, of those compared."""
        news, self._news = self._news, {}
        for place, count in news.items():
            yield f"overwritten-data:{place}", count


def _compare(sample: _Sample, before: Row, after: Row) -> None:
    if not before.shape == after.shape == sample.first.shape:
        return
    old, new, first = (one.astype(np.float64).ravel() for one in (before, after, sample.first))
    if not (np.isfinite(old).all() and np.isfinite(new).all() and np.isfinite(first).all()):
        return
    if np.ptp(old) > 0 and np.ptp(new) > 0 and _is_scaled(old, new):
        sample.scaled += 1
    if np.issubdtype(after.dtype, np.integer):
        sample.distances.append(float((new != first).mean()))
    else:
        sample.distances.append(float(np.linalg.norm(new - first)))


def _is_part_of(batch: Any, row: Row, place: int) -> bool:
    """Whether a row of the batch has the values of the stored one, in any order, scaled, or with padding behind them.

    What is stored beside the samples, such as counters, is not handed out. ``place`` is that of the sample in what was
    drawn, where its row is looked for first.
    """
    if not np.isfinite(row).all():
        return False
    exact, stored = row.astype(np.float64), np.sort(row.astype(np.float64))
    for one in islice(tensors_in(batch), TENSORS_MAX):
        if type(one) is not Tensor or one.ndim < 2 or one.device.type != "cpu" or one.is_complex() or not one.numel():
            continue
        columns = one.numel() // len(one)
        for rows in (one[place : place + 1], one[: max(ROWS_MIN, SCANNED_MAX // columns)]):
            parts = rows.detach().flatten(1)[:, :: -(-columns // ELEMENTS_MAX)].double().numpy()
            if any(_holds(part, exact, stored, whole=columns <= ELEMENTS_MAX) for part in parts):
                return True
    return False


def _holds(part: FloatArray, exact: FloatArray, stored: FloatArray, *, whole: bool) -> bool:
    """Whether a row of a batch begins with the stored row, or has its values (``stored``: sorted)."""
    shared = min(exact.size, part.size)
    begins = whole and shared >= ELEMENTS_MIN and _is_scaled(part[:shared], exact[:shared])
    return begins or (part.size == stored.size and _is_scaled(np.sort(part), stored))


def _is_scaled(one: FloatArray, other: FloatArray) -> bool:
    if np.ptp(one) == 0.0 or np.ptp(other) == 0.0:
        return bool(np.ptp(one) == np.ptp(other))  # erased, both
    return bool(np.corrcoef(one, other)[0, 1] > SCALED_MIN)


def _changed_reads(samples: Sequence[_Sample]) -> int:
    """The number of reads that changed a sample, 0 unless the changes pile up."""
    changed = sum(len(one.distances) for one in samples)
    again = [one for one in samples if len(one.distances) > 1]
    if changed < READS_MIN or len(again) < ROWS_MIN:
        return 0
    scaled = sum(one.scaled for one in samples) > changed // 2
    first, last = sum(one.distances[0] for one in again), sum(one.distances[-1] for one in again)
    return changed if scaled or last > GROWTH_MIN * first else 0


def _innermost(dataset: Any) -> Any:
    for _ in range(DEPTH_MAX):
        if type(dataset) is not Subset:
            break
        dataset = dataset.dataset
    return dataset


def _rows(dataset: Any, index: int) -> Iterator[tuple[tuple[str, int], Row]]:
    """Copies of what a data set holds of the sample, by (place, index of the loader)."""
    for place, held, inner in islice(_stores(dataset, index), STORES_MAX):
        row = _row(held, inner)
        if row is not None:
            yield (place, index), row


def _stores(dataset: Any, index: int, depth: int = 0) -> Iterator[tuple[str, Any, int]]:
    """The attributes of a data set, and of data sets within it, that may hold samples, each with the index there."""
    if depth > DEPTH_MAX:
        return
    if type(dataset) is Subset:
        yield from _stores(dataset.dataset, int(dataset.indices[index]), depth + 1)
        return
    held = {"[]": dataset} if type(dataset) in (list, tuple) else getattr(dataset, "__dict__", {})
    for name, value in tuple(held.items()):
        if isinstance(value, Dataset):
            yield from _stores(value, index, depth + 1)
        elif type(value) in (list, tuple) and 0 < len(value) <= FEW_MAX and all(map(_is_table, value)):
            yield from ((f"{name}[{at}]", one, index) for at, one in enumerate(value))
        elif _is_table(value) or type(value) in (list, tuple, dict):
            yield name, value, index


def _is_table(value: Any) -> bool:
    return (type(value) is Tensor or isinstance(value, np.ndarray)) and value.ndim > 0


def _row(held: Any, index: int) -> Row | None:
    """A copy of the sample in a store: of one with several parts the first that is large enough; of a table with few
    values a row the window that begins there."""
    try:
        row = held.get(index) if type(held) is dict else held[index]
        if _is_table(held) and (one := _values(row)) is not None and one.size < ELEMENTS_MIN:
            row = held[index : index + WINDOW]
    except (IndexError, KeyError, TypeError, ValueError):
        return None
    several = row.values() if isinstance(row, Mapping) else row if isinstance(row, (list, tuple)) else ()
    for part in (row, *islice(several, FEW_MAX)):
        values = _values(part)
        if values is not None and values.size >= ELEMENTS_MIN:
            return values
    return None


def _values(part: Any) -> Row | None:
    """A flat copy of numbers or words, a part of many; None of anything else."""
    if type(part) is Tensor:
        if part.layout is not strided or part.device.type != "cpu" or part.is_quantized:
            return None
        part = part.detach().float().numpy() if part.is_floating_point() else part.detach().numpy()
    elif isinstance(part, (list, tuple)) and len(part) <= ELEMENTS_MAX:
        if part and all(type(one) is str for one in part):
            part = np.array([zlib.crc32(one.encode("utf-8", "replace")) for one in part], WORDS)
        elif not all(type(one) in (int, float) for one in part):
            return None
    elif not isinstance(part, (np.ndarray, np.generic)):
        return None
    values = np.asarray(part)
    if values.dtype.kind not in "fiu":
        return None
    return np.array(values.reshape(-1)[:: -(-max(1, values.size) // ELEMENTS_MAX)])
