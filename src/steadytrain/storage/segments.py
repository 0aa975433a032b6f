"""Step segments: append-only files of fixed-size binary records, with a JSON schema beside each.

A record is one step: step number, wall-clock time, flags, the scalar signals, one float32 per tensor, and a CRC-32.
Each record is written with one ``write`` call on an unbuffered file, so a killed process loses at most the step in
flight. A reader stops at the first record that is incomplete or does not match its CRC.

A segment's tensors never change; a new parameter starts a new segment. Current runs write no tensors here: their
gradient norms are the table ``gradients`` (``tables.py``). Bundles and older runs have them in the records. Retention
thins and merges closed segments (``numbered_files.py``). Not here: how long data is kept.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.bounded_files import DOCUMENT_BYTES_MAX, check_memory, open_regular, read_json
from steadytrain.core.errors import UsageError, refuse_newer
from steadytrain.core.model import GRADIENT_ABSENT, SIGNALS, Table, Window
from steadytrain.core.own_errors import own
from steadytrain.storage.documents import as_json
from steadytrain.storage.numbered_files import Part, glance_at_parts, next_number, read_parts
from steadytrain.storage.own_file import OwnFile
from steadytrain.storage.record_checksums import whole_records

SEGMENT_VERSION = 1
SUFFIXES = (".steps",)
RECORDS_PER_SEGMENT_MAX = 100_000
WINDOW_BYTES_MAX = 8 << 30
NEWEST_TRIED_MAX = 8
"""Records at the end of a segment that are tried for the newest whole one."""

BLOCK_BYTES = 8 << 20
SCALARS: tuple[str, ...] = tuple(SIGNALS)

FLAG_SKIPPED = 1 << 30
FLAG_REFUSED = 1 << 29

_SCALARS_MAX = 29  # below the lowest flag
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_HEAD = [("crc", "<u4"), ("flags", "<u4"), ("step", "<i8"), ("time", "<f8")]


@dataclass(frozen=True)
class StepRecord:
    """One step from the live half. A scalar that is None was not measured."""

    step: int
    time: float
    scalars: Mapping[str, float | None]
    gradient_norms: NDArray[np.float32]
    skipped: bool = False
    refused: bool = False


class SegmentWriter:
    """Appends steps to ``folder``. Starts a new segment when the tensors change or a segment is full.

    Raises ``OSError`` if the disk does not take a whole record; the caller handles it.
    """

    def __init__(self, folder: Path, *, stream: str) -> None:
        self._folder = folder
        self._stream = stream
        self._tensor_names: tuple[str, ...] | None = None
        self._record: NDArray[Any] = np.zeros(1, _record_dtype(SCALARS, 0))
        self._file: OwnFile | None = None
        self._count = 0

    def append(self, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        if self._file is None or tensor_names != self._tensor_names or self._count >= RECORDS_PER_SEGMENT_MAX:
            self._start_segment(tensor_names)
        assert self._file is not None
        fill_record(self._record, record)
        data = self._record.tobytes()
        written = self._file.write(data)
        if written != len(data):
            # A torn record would shift all later ones, so cut it off: the file must end with a whole record.
            self._file.truncate(self._count * len(data))
            raise OSError(f"the disk took {written} of {len(data)} bytes of step {record.step}")
        self._count += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _start_segment(self, tensor_names: tuple[str, ...]) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        number = next_number(self._folder, SUFFIXES)
        schema = {
            "format": "steadytrain.segment",
            "version": SEGMENT_VERSION,
            "stream": self._stream,
            "scalars": list(SCALARS),
            "tensors": list(tensor_names),
        }
        (self._folder / f"{number:06d}.json").write_text(as_json(schema), encoding="utf-8")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file = OwnFile(self._folder / f"{number:06d}.steps", flags)
        self._tensor_names = tensor_names
        self._record = np.zeros(1, _record_dtype(SCALARS, len(tensor_names)))
        self._count = 0


def fill_record(buffer: NDArray[Any], record: StepRecord) -> None:
    """Write ``record`` with its flags and CRC into row 0 of ``buffer``, whose dtype fixes the tensors."""
    row = buffer[0]
    flags = (FLAG_SKIPPED if record.skipped else 0) | (FLAG_REFUSED if record.refused else 0)
    scalars = []
    for position, name in enumerate(SCALARS):
        value = record.scalars.get(name)
        if value is not None:
            flags |= 1 << position
        scalars.append(0.0 if value is None else _float32(value))
    row["scalars"] = scalars
    row["flags"], row["step"], row["time"] = flags, record.step, record.time
    row["tensors"] = record.gradient_norms
    row["crc"] = 0
    row["crc"] = zlib.crc32(buffer.tobytes())


def write_window(path: Path, window: Window) -> None:
    """Write a window as one closed segment: ``path`` with the suffixes ``.json`` and ``.steps``."""
    schema = {
        "format": "steadytrain.segment",
        "version": SEGMENT_VERSION,
        "stream": window.stream,
        "scalars": list(SCALARS),
        "tensors": list(window.tensor_names),
    }
    buffer = np.zeros(1, _record_dtype(SCALARS, len(window.tensor_names)))
    rows = []
    for index in range(len(window)):
        scalars = {
            name: float(window.signals[name][index]) if window.present[name][index] else None for name in window.signals
        }
        record = StepRecord(
            step=int(window.steps[index]),
            time=float(window.time[index]),
            scalars=scalars,
            gradient_norms=window.gradient_norms[index] if window.tensor_names else np.zeros(0, np.float32),
            skipped=bool(window.skipped[index]),
            refused=bool(window.refused[index]),
        )
        fill_record(buffer, record)
        rows.append(buffer.tobytes())
    path.with_suffix(".json").write_text(as_json(schema), encoding="utf-8")
    path.with_suffix(".steps").write_bytes(b"".join(rows))


def read_segment(path: Path) -> Window:
    """The complete steps of one segment (``path`` ends in ``.steps``).

    Raises:
        UsageError: the schema or the records cannot be read, or are of a newer format.
    """
    try:
        return _read_segment(path)
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename}: missing; the segment is damaged") from None


def read_stream(folder: Path) -> Window:
    """All complete steps of one stream, over all its segments, with the tensors of all segments side by side."""
    windows = read_parts(folder, SUFFIXES, lambda parts: [_read_segment(part.path) for part in parts])
    return join_windows([window for window in windows if len(window)], stream=folder.name)


def read_scalars(folder: Path) -> Window:
    """All complete steps of one stream without their tensors. Holds one segment in memory at a time."""
    none = np.zeros((0, 0), np.float32)

    def read(parts: list[Part]) -> list[Window]:
        segments = (_read_segment(part.path) for part in parts)
        return [replace(segment, tensor_names=(), gradient_norms=none) for segment in segments]

    windows = [window for window in read_parts(folder, SUFFIXES, read) if len(window)]
    return join_windows(windows, stream=folder.name)


def count_records(folder: Path) -> int:
    """Number of records in a stream, computed from file sizes; nothing is checked."""

    def count(parts: list[Part]) -> int:
        return sum(os.stat(part.path).st_size // schema_dtype(read_schema(part.schema)).itemsize for part in parts)

    return glance_at_parts(folder, SUFFIXES, count)


def newest_step(folder: Path) -> tuple[int, float] | None:
    """Number of the newest whole record of a stream and its time in seconds since the epoch; None without one."""

    def newest(parts: list[Part]) -> tuple[int, float] | None:
        for part in reversed(parts):
            dtype = schema_dtype(read_schema(part.schema))
            with open_regular(part.path) as file:
                count = os.fstat(file.fileno()).st_size // dtype.itemsize
                first = max(0, count - NEWEST_TRIED_MAX)
                file.seek(first * dtype.itemsize)
                rows = np.frombuffer(file.read((count - first) * dtype.itemsize), dtype)
            for at in range(len(rows) - 1, -1, -1):
                if whole_records(rows[at : at + 1]):
                    return int(rows["step"][at]), float(rows["time"][at])
        return None

    return glance_at_parts(folder, SUFFIXES, newest)


def _read_segment(path: Path) -> Window:
    schema = read_schema(path.with_suffix(".json"))
    rows = _records(path, schema)
    norms = rows["tensors"].astype(np.float32, copy=False)
    return replace(scalars_of_rows(rows, schema), tensor_names=tuple(schema["tensors"]), gradient_norms=norms)


def scalars_of_rows(rows: NDArray[Any], schema: dict[str, Any]) -> Window:
    """The steps of records of that schema, without their tensors."""
    flags = rows["flags"].astype(np.int64)
    return Window(
        steps=rows["step"].astype(np.int64),
        time=rows["time"].astype(np.float64),
        signals={name: rows["scalars"][:, i].astype(np.float64) for i, name in enumerate(schema["scalars"])},
        present={name: (flags >> i & 1).astype(np.bool_) for i, name in enumerate(schema["scalars"])},
        skipped=(flags & FLAG_SKIPPED) != 0,
        refused=(flags & FLAG_REFUSED) != 0,
        stream=schema["stream"],
    )


def _records(path: Path, schema: dict[str, Any]) -> NDArray[Any]:
    """The records up to the first that does not match its CRC. Nothing behind it is read."""
    dtype = schema_dtype(schema)
    blocks: list[NDArray[Any]] = []
    try:
        with open_regular(path) as file:
            while len(rows := _block(file, dtype)):
                good = whole_records(rows)
                blocks.append(rows[:good])
                if good < len(rows):
                    break
    except FileNotFoundError:
        raise
    except own(OSError) as error:
        raise UsageError(f"{path}: the steps cannot be read ({error.strerror})") from None
    check_memory(path, 2 * sum(block.nbytes for block in blocks))
    return np.concatenate(blocks) if len(blocks) > 1 else blocks[0] if blocks else np.zeros(0, dtype)


def _block(file: BinaryIO, dtype: np.dtype[Any]) -> NDArray[Any]:
    data = file.read(max(1, BLOCK_BYTES // dtype.itemsize) * dtype.itemsize)
    return np.frombuffer(data, dtype, count=len(data) // dtype.itemsize)


def join_windows(windows: Sequence[Window], *, stream: str = "main") -> Window:
    """Concatenate windows. A tensor that a window lacks is ``GRADIENT_ABSENT`` there."""
    if len(windows) == 1:
        return windows[0]
    names = tuple(dict.fromkeys(name for window in windows for name in window.tensor_names))
    column = {name: position for position, name in enumerate(names)}
    total = sum(len(window) for window in windows)
    norms = np.full((total, len(names)), -1.0, np.float32)
    row = 0
    for window in windows:
        if window.tensor_names:
            columns = [column[name] for name in window.tensor_names]
            norms[row : row + len(window), columns] = window.gradient_norms
        row += len(window)
    return Window(
        steps=_concatenate((w.steps for w in windows), np.int64),
        time=_concatenate((w.time for w in windows), np.float64),
        signals={
            name: _concatenate((w.signals.get(name, np.zeros(len(w))) for w in windows), np.float64) for name in SCALARS
        },
        present={
            name: _concatenate((w.present.get(name, np.zeros(len(w), np.bool_)) for w in windows), np.bool_)
            for name in SCALARS
        },
        skipped=_concatenate((w.skipped for w in windows), np.bool_),
        refused=_concatenate((w.refused for w in windows), np.bool_),
        tensor_names=names,
        gradient_norms=norms,
        stream=windows[0].stream if windows else stream,
    )


def with_gradient_norms(window: Window, gradients: Table) -> Window:
    """``window`` with the norms of the table ``gradients`` added, joined on the step.

    A step that the table lacks has ``GRADIENT_ABSENT``. If a step was recorded twice, the later reading counts.

    Raises:
        UsageError: the norms of all steps and tensors do not fit in memory.
    """
    names = tuple(dict.fromkeys([*window.tensor_names, *gradients.rows]))
    if 4 * len(window) * len(names) > WINDOW_BYTES_MAX:
        raise UsageError(
            f"{len(window)} steps of {len(names)} gradient norms do not fit in memory; read the scalars, the table "
            "`gradients` or one series of it"
        )
    norms = np.full((len(window), len(names)), GRADIENT_ABSENT, np.float32)
    norms[:, : len(window.tensor_names)] = window.gradient_norms if window.tensor_names else 0
    if len(gradients) and "norm" in gradients.columns:
        order = np.argsort(gradients.steps, kind="stable")
        at = np.searchsorted(gradients.steps[order], window.steps, side="right") - 1
        here = (at >= 0) & (gradients.steps[order[np.maximum(at, 0)]] == window.steps)
        position = {name: index for index, name in enumerate(names)}
        columns = np.array([position[row] for row in gradients.rows], np.int64)
        values = gradients.values[:, :, gradients.columns.index("norm")]
        norms[np.ix_(np.flatnonzero(here), columns)] = values[order[at[here]]]
    return replace(window, tensor_names=names, gradient_norms=norms)


def window_of(records: Sequence[StepRecord], tensor_names: tuple[str, ...], *, stream: str = "main") -> Window:
    """A window over records in memory that have the same tensors."""
    columns: dict[str, list[float]] = {name: [] for name in SCALARS}
    present: dict[str, list[bool]] = {name: [] for name in SCALARS}
    for record in records:
        for name in SCALARS:
            value = record.scalars.get(name)
            columns[name].append(0.0 if value is None else value)
            present[name].append(value is not None)
    norms = np.full((len(records), len(tensor_names)), -1.0, np.float32)
    for index, record in enumerate(records):
        if len(record.gradient_norms) == len(tensor_names):
            norms[index] = record.gradient_norms
    return Window(
        steps=np.array([record.step for record in records], np.int64),
        time=np.array([record.time for record in records], np.float64),
        signals={name: np.array(values, np.float64) for name, values in columns.items()},
        present={name: np.array(values, np.bool_) for name, values in present.items()},
        skipped=np.array([record.skipped for record in records], np.bool_),
        refused=np.array([record.refused for record in records], np.bool_),
        tensor_names=tensor_names,
        gradient_norms=norms,
        stream=stream,
    )


def _record_dtype(scalars: tuple[str, ...], tensors: int) -> np.dtype[Any]:
    return np.dtype([*_HEAD, ("scalars", "<f4", (len(scalars),)), ("tensors", "<f4", (tensors,))])


def schema_dtype(schema: dict[str, Any]) -> np.dtype[Any]:
    """The record dtype of a segment with that schema."""
    return _record_dtype(tuple(schema["scalars"]), len(schema["tensors"]))


def read_schema(path: Path) -> dict[str, Any]:
    """Read a segment's schema and check its names.

    Raises:
        UsageError: unreadable, of a newer format or damaged.
        FileNotFoundError: the file no longer exists.
    """
    try:
        schema = read_json(path, bytes_max=DOCUMENT_BYTES_MAX)
        version, names = schema["version"], [*schema["scalars"], *schema["tensors"]]
        schema.setdefault("stream", "main")
    except FileNotFoundError:
        raise
    except own(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: not a readable segment schema ({error}); the run folder is damaged") from None
    refuse_newer(path, version, SEGMENT_VERSION, what="segment")
    if not all(isinstance(name, str) for name in [*names, schema["stream"]]) or len(schema["scalars"]) > _SCALARS_MAX:
        raise UsageError(f"{path}: the segment schema holds an invalid name; the run folder is damaged")
    return dict(schema)


def _float32(value: float) -> float:
    """Clamp a finite value to float32's range, because an overflow must not read as a measured Inf."""
    return max(-_FLOAT32_MAX, min(_FLOAT32_MAX, value)) if math.isfinite(value) else value


def _concatenate(parts: Iterable[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    arrays = list(parts)
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)
