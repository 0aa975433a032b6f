"""The index of a run folder, open for writing while the script runs: an SQLite database whose descriptors are watched.

SQLite holds three descriptors. If the script closes one and opens a file of its own, SQLite would write into that file,
even when the connection is closed. So before each use the descriptors are compared with what they led to. If one is
gone, the connection is abandoned, never closed, and its database is recovered from a copy.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from steadytrain.storage.own_file import FileId, abandon, descriptors_below, file_id

INDEX_FILE = "index.sqlite"
SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS symptoms (
    name TEXT NOT NULL, stream TEXT NOT NULL, first_step INTEGER NOT NULL, last_step INTEGER NOT NULL,
    severity TEXT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (name, stream, first_step));
CREATE TABLE IF NOT EXISTS incidents (path TEXT PRIMARY KEY, step INTEGER NOT NULL, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS actions (id INTEGER PRIMARY KEY, step INTEGER NOT NULL, document TEXT NOT NULL);
"""
SIDE_FILES = ("-wal", "-shm")
RECOVERED = "recovered-"


class RunIndex:
    """Executes statements on the database at ``path``, which ``schema`` creates.

    Raises:
        OSError, sqlite3.Error: the database cannot be written.
    """

    def __init__(self, path: Path, schema: str, *, busy_s: float) -> None:
        self._path = path
        self._schema = schema
        self._busy_s = busy_s
        self._descriptors: dict[int, FileId] = {}
        self._connection = self._connect()

    def execute(self, statement: str, values: tuple[Any, ...]) -> None:
        """One statement in a transaction of its own."""
        if not self._is_ours():
            self._recover()
        with self._connection:
            self._connection.execute(statement, values)

    def close(self) -> None:
        if self._is_ours():
            self._connection.close()
        else:
            abandon(self._connection)

    def _connect(self) -> sqlite3.Connection:
        before = descriptors_below(self._path.parent)
        # Only the training thread writes, but another thread may have opened the folder.
        connection = sqlite3.connect(self._path, timeout=self._busy_s, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.executescript(f"BEGIN IMMEDIATE;{self._schema}COMMIT;")  # all tables or none
        except BaseException:
            connection.close()
            raise
        after = descriptors_below(self._path.parent)
        self._descriptors = {number: there for number, there in after.items() if before.get(number) != there}
        return connection

    def _is_ours(self) -> bool:
        return all(file_id(number) == there for number, there in self._descriptors.items())

    def _recover(self) -> None:
        """A new database with the same content. It is another file: SQLite shares descriptors between connections to
        the same one."""
        abandon(self._connection)
        copy = self._path.with_name(RECOVERED + self._path.name)
        try:
            shutil.copyfile(self._path, copy)
            log = Path(f"{self._path}-wal")
            if log.exists():
                shutil.copyfile(log, f"{copy}-wal")
            recovered = sqlite3.connect(copy, timeout=self._busy_s)
            try:
                recovered.execute("PRAGMA journal_mode=DELETE")
            finally:
                recovered.close()
            for end in SIDE_FILES:
                Path(f"{self._path}{end}").unlink(missing_ok=True)
            os.replace(copy, self._path)
        finally:
            for end in ("", *SIDE_FILES):
                Path(f"{copy}{end}").unlink(missing_ok=True)
        self._connection = self._connect()
