"""Rewrite the closed parts of a run folder: thinned, merged, and tables as Parquet.

``thinning.py`` decides what is kept; ``numbered_files.py`` replaces files safely under a reader. Compaction uses only
what lies on disk, one bounded piece at a time, and may be interrupted anywhere. It skips the last part of a folder,
which may still grow. Small parts, and all parts if pyarrow is missing, stay in raw format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import FloatArray, IntArray
from steadytrain.storage import segments, tables
from steadytrain.storage.columnar import ColumnarPart, Positions, fits, is_available, open_columnar, write_columnar
from steadytrain.storage.numbered_files import (
    PARQUET,
    Part,
    clean,
    list_parts,
    map_records,
    merged,
    publish,
    sync,
    temporary,
)
from steadytrain.storage.record_checksums import whole_records
from steadytrain.storage.tables import RawPart
from steadytrain.storage.thinning import SCALARS_FULL_STEPS, Held, full_steps_of, plan

CHUNK_BYTES = 4 << 20
COLUMNAR_BYTES_MIN = 16 << 20
"""From this size on a part becomes Parquet. A smaller one is fast to read anyway, and writing Parquet takes 90 MB in
the training process (measured), too much for a model with so few tensors."""

MayGoOn = Callable[[], bool]
Known = dict[tuple[Path, int, int], Held]
"""Cached facts about table parts by path, size and modification time, so that a pass opens only new files."""


def compact_steps(folder: Path, *, places: Sequence[int], may_go_on: MayGoOn) -> None:
    """Thin the scalars of one stream."""
    clean(folder, segments.SUFFIXES)
    parts = list_parts(folder, segments.SUFFIXES)
    held = [_held_steps(part) for part in parts]
    newest = max((int(one.steps[-1]) for one in held if len(one.steps)), default=0)
    for job in plan(held[:-1], newest=newest, full_steps=SCALARS_FULL_STEPS, places=places):
        if not may_go_on():
            return
        _replace_steps(parts[job.start : job.stop], job.keep)


def compact_table(folder: Path, *, places: Sequence[int], known: Known, may_go_on: MayGoOn) -> None:
    """Thin one table and merge its parts."""
    clean(folder, tables.SUFFIXES)
    parts = list_parts(folder, tables.SUFFIXES)
    if not is_available():
        # Without pyarrow, leave alone what another environment wrote as Parquet, and everything before it.
        parts = parts[1 + max((i for i, part in enumerate(parts) if part.path.suffix == PARQUET), default=-1) :]
    held = _held_tables(parts, known)
    newest = max((int(one.steps[-1]) for one in held if len(one.steps)), default=0)
    rows, columns = max(((len(one.rows), len(one.columns)) for one in held), default=(0, 0))
    for job in plan(held[:-1], newest=newest, full_steps=full_steps_of(rows, columns), places=places):
        if not may_go_on() or not _replace_table(folder, parts[job.start : job.stop], job.keep, may_go_on):
            return


@dataclass(frozen=True)
class Selection:
    """The marked readings of some parts as one table: all rows and columns, with absent cells where a part lacks
    them.
    """

    parts: tuple[RawPart | ColumnarPart, ...]
    at: tuple[NDArray[np.intp], ...]
    table: str

    @cached_property
    def rows(self) -> tuple[str, ...]:
        return _united([part.rows for part in self.parts])

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return _united([part.columns for part in self.parts])

    @cached_property
    def steps(self) -> IntArray:
        return np.concatenate([part.steps[at] for part, at in zip(self.parts, self.at, strict=True)])

    @cached_property
    def time(self) -> FloatArray:
        return np.concatenate([part.time[at] for part, at in zip(self.parts, self.at, strict=True)])

    def block(self, start: int, stop: int, at: Positions = slice(None)) -> NDArray[np.float32]:
        """The values of rows ``start`` to ``stop``, shape (readings, rows, columns)."""
        found = [self.spread(part, here, start, stop) for part, here in zip(self.parts, self.at, strict=True)]
        return np.concatenate(found)[at]

    def spread(self, part: RawPart | ColumnarPart, at: NDArray[np.intp], start: int, stop: int) -> NDArray[np.float32]:
        """The values of one part, moved to the rows and columns of the whole table."""
        if part.rows == self.rows and part.columns == self.columns:
            return part.block(start, stop, at)
        values = np.full((len(at), stop - start, len(self.columns)), tables.absent(self.table), np.float32)
        row_at = {row: position for position, row in enumerate(part.rows)}
        rows = [(here, row_at[row]) for here, row in enumerate(self.rows[start:stop]) if row in row_at]
        columns = [self.columns.index(column) for column in part.columns]
        if rows:
            first, last = min(row for _, row in rows), max(row for _, row in rows)
            block = part.block(first, last + 1, at)
            for here, row in rows:
                values[:, here, columns] = block[:, row - first]
        return values


def _replace_table(folder: Path, parts: Sequence[Part], keep: Sequence[NDArray[np.bool_]], may_go_on: MayGoOn) -> bool:
    """Merge the kept readings of ``parts`` into one file and replace them with it. False if ``may_go_on`` stopped
    it.
    """
    opened = tuple(tables.open_whole(part) for part in parts)
    at = tuple(np.flatnonzero(mask[: len(part.steps)]) for part, mask in zip(opened, keep, strict=True))
    chosen = Selection(opened, at, folder.name)
    size = len(chosen.steps) * tables.record_dtype(len(chosen.rows), len(chosen.columns)).itemsize
    is_large = size >= COLUMNAR_BYTES_MIN and fits(chosen.rows, chosen.columns, len(chosen.steps))
    columnar = is_large and is_available()
    final = merged(parts, PARQUET if columnar else ".rows")
    with temporary(folder, final.path.stem) as path:
        if columnar:
            if not write_columnar(path, chosen, stream=folder.parent.name, table=folder.name, may_go_on=may_go_on):
                return False
            open_columnar(path)
        else:
            _write_raw(path, chosen)
        sync(path)
        if not columnar:
            _write_schema(final, tables.Schema(folder.parent.name, folder.name, chosen.rows, chosen.columns))
        publish(path, final, parts)
    return True


def _write_raw(path: Path, chosen: Selection) -> None:
    dtype = tables.record_dtype(len(chosen.rows), len(chosen.columns))
    at_once = max(1, CHUNK_BYTES // dtype.itemsize)
    with path.open("wb") as file:
        for part, at in zip(chosen.parts, chosen.at, strict=True):
            for start in range(0, len(at), at_once):
                here = at[start : start + at_once]
                records = np.zeros(len(here), dtype)
                records["step"], records["time"] = part.steps[here], part.time[here]
                records["values"] = chosen.spread(part, here, 0, len(chosen.rows))
                tables.seal_records(records)
                file.write(records.tobytes())


def _write_schema(final: Part, schema: tables.Schema) -> None:
    """Write the schema of ``final`` before that is published. A part that is thinned alone keeps the same schema."""
    text = tables.schema_text(schema)
    with temporary(final.path.parent, f"{final.path.stem}-schema") as path:
        path.write_text(text, encoding="utf-8")
        sync(path)
        path.replace(final.schema)


def _replace_steps(parts: Sequence[Part], keep: Sequence[NDArray[np.bool_]]) -> None:
    """Like :func:`_replace_table`, for records of one schema, which are copied unchanged."""
    final = merged(parts, segments.SUFFIXES[0])
    schema = segments.read_schema(parts[0].schema)
    at_once = max(1, CHUNK_BYTES // segments.schema_dtype(schema).itemsize)
    with temporary(final.path.parent, final.path.stem) as path:
        with path.open("wb") as file:
            for part, mask in zip(parts, keep, strict=True):
                records = map_records(part.path, segments.schema_dtype(schema))
                records = records[: whole_records(records)]
                here = np.flatnonzero(mask[: len(records)])
                for start in range(0, len(here), at_once):
                    file.write(records[here[start : start + at_once]].tobytes())
        sync(path)
        if len(parts) > 1:
            final.schema.write_text(parts[0].schema.read_text(encoding="utf-8"), encoding="utf-8")
        publish(path, final, parts)


def _held_steps(part: Part) -> Held:
    schema = segments.read_schema(part.schema)
    records = map_records(part.path, segments.schema_dtype(schema))
    kind = repr((schema["version"], schema["stream"], schema["scalars"], schema["tensors"]))
    return Held(records["step"].astype(np.int64), kind=kind, head_bytes=records.dtype.itemsize)


def _held_tables(parts: Sequence[Part], known: Known) -> list[Held]:
    """What :func:`plan` needs of each part. ``known`` then holds exactly these."""
    now: Known = {}
    for part in parts:
        facts = part.path.stat()
        key = part.path, facts.st_size, facts.st_mtime_ns
        if key not in known:
            opened = tables.open_part(part)
            now[key] = Held(opened.steps, opened.rows, opened.columns)
        else:
            now[key] = known[key]
    known.clear()
    known.update(now)
    return list(now.values())


def _united(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    if all(one == names[0] for one in names):
        return names[0]
    return tuple(dict.fromkeys(name for one in names for name in one))
