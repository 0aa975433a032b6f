"""The index of a run folder, opened for reading: bounded, and never as what no index of ours is.

A listing opens thousands of them, so paths are plain strings here. Not here: writing an index (``run_index``), and what
its entries mean (``run_folder``).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from steadytrain.core.bounded_files import HOLLOW_BYTES_MIN, check_size
from steadytrain.core.errors import UsageError
from steadytrain.storage.run_index import INDEX_FILE, SCHEMA, SIDE_FILES

BUSY_WAIT_S = 2.0

ENTRIES_MAX = 200_000
"""Entries of each kind that are read from an index. A run has a few of each, and a ledger one per acted-on step."""

ENTRY_BYTES_MAX = 64 << 20


@contextmanager
def open_index(path: Path) -> Iterator[sqlite3.Connection]:
    """The index of the run folder ``path``, also on a read-only disk. A missing or empty file reads as an empty index.

    Raises:
        UsageError: it is damaged, or holds what no index of ours holds.
    """
    file = os.path.join(os.path.abspath(path), INDEX_FILE)
    try:
        with closing(_connect(file)) as index:
            if _bound(index):
                yield index
                return
        with closing(_empty()) as index:  # its process was killed before it had made the tables
            yield index
    except sqlite3.Error as error:
        raise UsageError(
            f"{path / INDEX_FILE}: the index cannot be read ({error}); the run folder is damaged"
        ) from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        why = f"the index holds an unreadable entry ({error!r}); the folder is damaged"
        raise UsageError(f"{path / INDEX_FILE}: {why}") from None


def entries(index: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    """The first ``ENTRIES_MAX`` rows of a query."""
    return islice(index.execute(sql), ENTRIES_MAX)


def _bound(index: sqlite3.Connection) -> bool:
    """Refuse what no index of ours holds: a view, which computes its rows when they are read, and a huge entry.

    Returns whether there is any table.
    """
    if sys.version_info >= (3, 11):  # on Python 3.10 only the size of the file bounds an entry
        index.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, ENTRY_BYTES_MAX)
    made = index.execute("SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    for name, kind, sql in made:
        if kind != "table" or "VIRTUAL" in str(sql).upper().split("(")[0] or " AS (" in str(sql).upper():
            raise ValueError(f"{str(name)[:80]} is computed")
    return bool(made)


def _empty() -> sqlite3.Connection:
    index = sqlite3.connect(":memory:")
    index.executescript(SCHEMA)
    return index


def _connect(file: str) -> sqlite3.Connection:
    if not _size_of(file):
        return _empty()
    address = f"file:{quote(os.fsencode(file))}?mode=ro"
    if not os.path.exists(f"{file}{SIDE_FILES[0]}"):
        # No process has it open for writing, so read it as immutable and leave no new file behind.
        return sqlite3.connect(f"{address}&immutable=1", uri=True, timeout=BUSY_WAIT_S)
    index = sqlite3.connect(address, uri=True, timeout=BUSY_WAIT_S)
    try:
        index.execute("SELECT count(*) FROM facts")
    except sqlite3.OperationalError:
        # The disk cannot hold the WAL's shared-memory file, but checkpointed content is still readable.
        index.close()
        index = sqlite3.connect(f"{address}&immutable=1", uri=True, timeout=BUSY_WAIT_S)
    return index


def _size_of(file: str) -> int:
    """The size of a regular file, 0 if there is none. A large one is checked for holes.

    Raises:
        UsageError: it is mostly holes.
    """
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    if not stat.S_ISREG(found.st_mode):
        return 0
    return check_size(file) if found.st_size > HOLLOW_BYTES_MIN else found.st_size
