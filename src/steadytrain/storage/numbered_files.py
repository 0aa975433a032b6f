"""Parts: the numbered files that hold the steps of a stream or the readings of a table.

A writer makes ``000001``, ``000002``, ... Retention replaces neighbours with one file named after the first and last
number that it covers: ``000001-000004``. One rename publishes that file. From then on a reader ignores the files that
it covers, whether they still exist or not. So if a process dies at any point, a reader sees either the old files or the
new one.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own

PARQUET = ".parquet"
LISTINGS_MAX = 20
READ_BYTES_MAX = 8 << 20
_PAUSE_S = 0.01
_TEMPORARY = ".part"
_NAME = re.compile(r"(\d{6,18})(?:-(\d{6,18}))?")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Part:
    """A file that covers the numbers ``first`` to ``last``."""

    first: int
    last: int
    path: Path

    @property
    def schema(self) -> Path:
        """The JSON file beside a raw part that describes its records. Parquet parts describe themselves."""
        return self.path.with_suffix(".json")

    @property
    def files(self) -> tuple[Path, ...]:
        """The file and its schema, in the order in which they may be removed."""
        return (self.path,) if self.path.suffix == PARQUET else (self.path, self.schema)


def list_parts(folder: Path, suffixes: Sequence[str]) -> list[Part]:
    """The valid parts, oldest first. If two cover the same numbers, the suffix that comes first in ``suffixes``
    wins.
    """
    found = []
    for part in _all_parts(folder, suffixes):
        rank = suffixes.index(part.path.suffix)
        found.append((part.first, -part.last, rank, part))
    counted: list[Part] = []
    for *_, part in sorted(found, key=lambda entry: entry[:3]):
        if not counted or part.first > counted[-1].last:
            counted.append(part)
    return counted


def next_number(folder: Path, suffixes: Sequence[str]) -> int:
    """The number of a writer's next file."""
    return 1 + max((part.last for part in _all_parts(folder, suffixes)), default=0)


def read_parts(folder: Path, suffixes: Sequence[str], read: Callable[[list[Part]], Result]) -> Result:
    """Call ``read`` with the parts. Lists them again if retention replaced some in the meantime.

    Raises:
        UsageError: a file is missing, and was not replaced.
    """
    parts = list_parts(folder, suffixes)
    for number in range(LISTINGS_MAX):
        if number or _has_gap(parts):
            # Listed between a rename and its removals, or beside a rewriting, or somebody deleted a file.
            time.sleep(_PAUSE_S * max(1, number))
        before, again = _identities(parts), list_parts(folder, suffixes)
        if again[: len(parts)] != parts:
            parts = again
            continue
        # What a writer added in the meantime is read too: a busy writer must not keep a reader waiting.
        before += _identities(again[len(parts) :])
        parts = again
        try:
            found = read(parts)
        except FileNotFoundError as error:
            again = list_parts(folder, suffixes)
            if again == parts:
                raise UsageError(f"{error.filename}: missing; the run folder is damaged") from None
            parts = again
            continue
        if _identities(parts) == before or number == LISTINGS_MAX - 1:
            return found
        # One was rewritten under its name while it was read: thinned for newer parts that this listing lacks.
        parts = list_parts(folder, suffixes)
    raise UsageError(f"{folder}: its files change faster than they can be read; try again")


def glance_at_parts(folder: Path, suffixes: Sequence[str], read: Callable[[list[Part]], Result]) -> Result:
    """Like :func:`read_parts`, from one listing where that has no gap: for what may be a moment old, such as a count.

    Raises:
        UsageError: a file is missing, and was not replaced.
    """
    parts = list_parts(folder, suffixes)
    if not _has_gap(parts):
        with suppress(FileNotFoundError):
            return read(parts)
    return read_parts(folder, suffixes, read)


def _identities(parts: Sequence[Part]) -> list[int | None]:
    """The file behind each part; None if it is gone. A file that grows stays the same one."""
    found: list[int | None] = []
    for part in parts:
        try:
            found.append(os.stat(part.path).st_ino)
        except own(OSError):
            found.append(None)
    return found


def map_records(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The complete records of a file: read, or memory-mapped if it is larger than ``READ_BYTES_MAX``.

    The file is opened only once, because retention may replace it at any moment. A file in progress is small enough to
    be read: its writer may cut off a torn record, and the end of a mapped file must stay.

    Raises:
        UsageError: not a regular file, or mostly holes.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= READ_BYTES_MAX:
            data = file.read(size)
            return np.frombuffer(data, dtype, count=len(data) // dtype.itemsize)
        return np.asarray(np.memmap(file, dtype, "r", shape=(size // dtype.itemsize,)))


@contextmanager
def temporary(folder: Path, name: str) -> Iterator[Path]:
    """A path to write to before :func:`publish`. The file is removed at the end if it still exists."""
    path = folder / f".{name}{_TEMPORARY}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def publish(written: Path, final: Part, covered: Sequence[Part]) -> None:
    """Rename a complete file (see :func:`sync`) to ``final``, and remove the parts that it covers."""
    os.replace(written, final.path)
    sync(final.path.parent)
    _remove(covered, final)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def clean(folder: Path, suffixes: Sequence[str]) -> None:
    """Remove what a killed process left: temporary files, and parts that another part covers."""
    for entry in folder.glob(f".*{_TEMPORARY}"):
        entry.unlink(missing_ok=True)
    counted = list_parts(folder, suffixes)
    for part in _all_parts(folder, suffixes):
        covering = next((one for one in counted if one.first <= part.first and part.last <= one.last), part)
        _remove([part] if covering != part else [], covering)


def merged(parts: Sequence[Part], suffix: str) -> Part:
    """The part that will replace ``parts``."""
    first, last = parts[0].first, parts[-1].last
    stem = parts[0].path.stem if len(parts) == 1 else f"{first:06d}-{last:06d}"
    return Part(first, last, parts[0].path.parent / f"{stem}{suffix}")


def _remove(covered: Sequence[Part], final: Part) -> None:
    for part in covered:
        for path in part.files:
            if path not in final.files:
                path.unlink(missing_ok=True)


def _all_parts(folder: Path, suffixes: Sequence[str]) -> list[Part]:
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, dot, suffix = entry.name.rpartition(".")
                match = _NAME.fullmatch(stem) if dot + suffix in suffixes else None
                if match is None or entry.is_symlink():
                    continue
                first, last = int(match[1]), int(match[2] or match[1])
                if last >= first:
                    found.append(Part(first, last, folder / entry.name))
    except own(OSError):
        return []
    return found


def _has_gap(parts: Sequence[Part]) -> bool:
    expected = 1
    for part in parts:
        if part.first != expected:
            return True
        expected = part.last + 1
    return False
