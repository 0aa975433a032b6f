"""TensorBoard's event files: one file, or a folder with some, read by tensorboard's own reader (an extra).

The files of one folder form one run, in the order of their names, which begin with the time. Keras writes evaluations
to a separate folder, ``validation``, so files in such a folder are not training.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, final

from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install
from steadytrain.logs.column_names import EVALUATION
from steadytrain.logs.log_runs import logs_of
from steadytrain.logs.metric_points import Points, rows_of
from steadytrain.logs.reader import Columns, Log, Reader, Tell

_MARK = "tfevents"
_FRAME = struct.Struct("<QI")
_FOOT_BYTES = 4
_EVENTS_BETWEEN_TELLS = 10_000


@final
class Tensorboard(Reader):
    """An event file of TensorBoard, or a folder of event files."""

    kind = "tensorboard"
    in_folders: ClassVar[tuple[str, ...]] = ()

    def claims(self, path: Path, head: bytes) -> bool:
        if head:
            return _MARK in path.name or head[24:43].startswith(b"brain.Event:")
        return bool(_event_files(path))

    def read(self, path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
        files = _event_files(path) if path.is_dir() else [path]
        folder = path if path.is_dir() else path.absolute().parent
        prefix = f"{folder.name}/" if folder.name.lower() in EVALUATION else ""
        metrics: dict[str, Points] = {}
        notes: list[str] = []
        for file in files:
            read = 0
            for event in _events(file, tell):
                read += 1
                for value in event.summary.value:
                    number = _number(value)
                    if number is not None:
                        points = metrics.setdefault(f"{prefix}{value.tag}", Points())
                        points.add(int(event.step), number, float(event.wall_time))
            note = _damage(file, read)
            if note:
                notes.append(note)
        if not metrics:
            cut = f" ({notes[0]})" if notes else ""
            raise UsageError(f"{path}: no scalars in it{cut}")
        name = path.absolute().name if path.is_dir() else f"{folder.name}/{path.name}"
        return logs_of(rows_of(metrics), columns, path=path, kind=self.kind, name=name, notes=notes)


def _event_files(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if _MARK in entry.name and entry.is_file())
    except OSError:
        return []


def _events(path: Path, tell: Tell) -> Iterator[Any]:
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        raise UsageError(
            f"{path}: TensorBoard's event files are read by its own reader: {install('tensorboard')}"
        ) from None
    size = path.stat().st_size
    seen = 0
    for seen, event in enumerate(EventFileLoader(str(path)).Load(), start=1):
        if seen % _EVENTS_BETWEEN_TELLS == 0:
            tell(path, min(size, 100 * seen), size)  # the reader does not report its position
        yield event
    if not seen:
        raise UsageError(f"{path}: no complete event in it; it is truncated or not an event file")


def _number(value: Any) -> float | None:
    """The scalar in a summary's value, None for anything else (an image, a histogram, text)."""
    from tensorboard.util import tensor_util

    if value.metadata.plugin_data.plugin_name not in ("scalars", ""):
        return None
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor"):
        return None
    try:
        array = tensor_util.make_ndarray(value.tensor)
        return float(array.item()) if array.size == 1 else None
    except (TypeError, ValueError):
        return None


def _damage(path: Path, read: int) -> str:
    """The part of a file that was not read, if its reader yielded ``read`` events; "" if it read everything.

    The reader silently stops at a record with a wrong checksum, so this counts the records by their lengths.
    """
    size = path.stat().st_size
    position = records = 0
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            frame = file.read(_FRAME.size)
            if len(frame) < _FRAME.size:
                break
            end = position + _FRAME.size + int(_FRAME.unpack(frame)[0]) + _FOOT_BYTES
            if end > size:
                break
            position = end
            records += 1
    if records > read:
        return f"{path.name} is damaged: its last {records - read:,} of {records:,} records were not read."
    if position < size:
        return f"{path.name} is cut short or damaged; its last {size - position:,} bytes were not read."
    return ""
