"""Determine the format of a file or folder, and read it.

Formats are the modules of ``steadytrain.logs.formats``. In a folder, only files with the name of a log are read.
Unreadable ones are reported, and are an error only if no log is found.
"""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.logs.reader import ANY_TEXT, LOG_READERS, Columns, Log, Reader, Tell
from steadytrain.logs.text_files import HEAD_BYTES, head_of, is_text, packed_as

LOGS_MAX = 1_000
FILES_MAX = 100_000
DEPTH_MAX = 10
_PASSED_OVER = frozenset({".git", "__pycache__", "node_modules", ".venv", "venv", "site-packages"})


@dataclass(frozen=True)
class Found:
    """The runs of a path, and a line for each file that looked like a log but could not be read."""

    logs: tuple[Log, ...]
    skipped: tuple[str, ...] = ()


def read_logs(path: Path, columns: Columns) -> tuple[Log, ...]:
    """The runs in a file or folder. Notes of the first list the files that could not be read.

    Raises:
        UsageError: nothing could be read.
    """
    found = find_logs(path, columns)
    first = replace(found.logs[0], notes=(*found.logs[0].notes, *(f"Not read: {line}" for line in found.skipped)))
    return (first, *found.logs[1:])


def find_logs(path: Path, columns: Columns, *, tell: Tell = lambda path, done, size: None) -> Found:
    """The runs in a file or folder, and what could not be read. ``tell`` gets the progress in a long file.

    Raises:
        UsageError: nothing could be read.
    """
    try:
        exists, is_folder = path.exists(), path.is_dir()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"{str(path)[:200]}: cannot be read ({why})") from None
    if not exists:
        raise UsageError(f"{path}: no such file or folder")
    if is_folder:
        return _read_folder(path, columns, tell)
    if not path.is_file():
        raise UsageError(f"{path}: a pipe or a device, and logs are read more than once; write it to a file first")
    return Found(_numbered(_read_file(path, columns, tell)))


@lru_cache(maxsize=1)
def readers() -> tuple[Reader, ...]:
    """Every format, the distinctive ones first."""
    found = [cls() for cls in LOG_READERS.classes()]
    return tuple(sorted(found, key=lambda reader: (reader.general, reader.kind)))


def _read_file(path: Path, columns: Columns, tell: Tell) -> tuple[Log, ...]:
    head = head_of(path)
    if not head:
        raise UsageError(f"{path}: the file is empty")
    if not head.strip() and len(head) < HEAD_BYTES:
        raise UsageError(f"{path}: only blank lines")
    for reader in readers():
        if reader.claims(path, head):
            return reader.read(path, columns, tell)
    packed = packed_as(head)
    if packed:
        raise UsageError(f"{path}: compressed with {packed}; decompress it first")
    assert not is_text(head), "any text has a reader"
    raise UsageError(f"{path}: a binary file of an unknown kind (docs/analyze.md lists the known ones)")


def _read_folder(folder: Path, columns: Columns, tell: Tell) -> Found:
    logs: list[Log] = []
    skipped: list[str] = []
    unlike: list[str] = []
    for reader, path in _logs_below(folder):
        if len(logs) >= LOGS_MAX:
            skipped.append(f"{folder}: more than {LOGS_MAX} runs; the rest was not read")
            break
        try:
            logs += reader.read(path, columns, tell) if path.is_dir() else _read_file(path, columns, tell)
        except UsageError as error:
            # Many texts are called .log without being about training. They are not worth a line beside real logs.
            (unlike if reader.general == ANY_TEXT else skipped).append(str(error))
    if logs:
        return Found(_told_apart(folder, logs), tuple(skipped))
    reasons = skipped or unlike
    if reasons:
        more = f" (and {len(reasons) - 1} more that could not be read)" if len(reasons) > 1 else ""
        raise UsageError(f"{reasons[0]}{more}")
    patterns = ", ".join(sorted({pattern for reader in readers() for pattern in reader.in_folders}))
    raise UsageError(f"{folder}: no logs in this folder; looked for run folders and {patterns}")


def _told_apart(folder: Path, logs: Sequence[Log]) -> tuple[Log, ...]:
    """The logs, with parent folders added to equal names."""
    times = Counter(log.name for log in logs)
    return _numbered([replace(log, name=_name_in(folder, log)) if times[log.name] > 1 else log for log in logs])


def _numbered(logs: Sequence[Log]) -> tuple[Log, ...]:
    """The logs, with a number appended to repeated names."""
    seen: Counter[str] = Counter()
    found = []
    for log in logs:
        seen[log.name] += 1
        found.append(replace(log, name=f"{log.name} ({seen[log.name]})") if seen[log.name] > 1 else log)
    return tuple(found)


def _name_in(folder: Path, log: Log) -> str:
    try:
        between = log.source.parent.relative_to(folder).as_posix()
    except ValueError:
        return log.name
    return log.name if between == "." else f"{between}/{log.name.removeprefix(f'{log.source.parent.name}/')}"


def _logs_below(folder: Path) -> list[tuple[Reader, Path]]:
    """The logs in a folder, each with the reader that recognized it, sorted by path."""
    found = list(_noticed(folder))
    superseded: set[Path] = set()
    for reader in readers():
        superseded |= reader.repeated([path for other, path in found if other is reader])
    return [(reader, path) for reader, path in found if path not in superseded]


def _noticed(folder: Path) -> Iterator[tuple[Reader, Path]]:
    looked = 0
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER)
        if len(here.relative_to(folder).parts) >= DEPTH_MAX:
            folders.clear()
        whole = None
        for reader in readers():
            if reader.claims(here, b""):
                yield reader, here
                whole = whole or (reader if reader.whole_folder else None)
        if whole is not None:
            folders.clear()
            continue
        for name in sorted(files):
            looked += 1
            known = next((r for r in readers() if any(fnmatch.fnmatch(name, p) for p in r.in_folders)), None)
            if known is not None:
                yield known, here / name
        if looked > FILES_MAX:
            return
