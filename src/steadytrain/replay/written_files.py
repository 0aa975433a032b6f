"""Counts the files that launched scripts wrote to scratch folders, for the one line that a command says at its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

WRITTEN = "written-"
"""Folders with this prefix in a scratch folder mirror the paths that a launched script wrote to."""

NAMES_SHOWN = 3
FILES_MAX = 100_000
_written: dict[str, None] = {}


def note_written(scratch: Path) -> None:
    """Remembers the files in the mirrors below ``scratch``, before the folder is removed."""
    for mirror in scratch.glob(f"{WRITTEN}*"):
        for path in _files(mirror):
            _written[path[len(str(mirror)) :]] = None


def take_line() -> str | None:
    """What was written since the last call, in one line; None if nothing was."""
    paths = sorted(_written)
    _written.clear()
    if not paths:
        return None
    names = ", ".join(
        os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path for path in paths[:NAMES_SHOWN]
    )
    more = f" and {len(paths) - NAMES_SHOWN} more" if len(paths) > NAMES_SHOWN else ""
    count = f"{len(paths)} files were" if len(paths) > 1 else "1 file was"
    return f"{count} written to a scratch folder instead of {names}{more}; yours are unchanged"


def _files(mirror: Path) -> Iterator[str]:
    for at, _, names in os.walk(mirror):
        for name in names:
            if len(_written) >= FILES_MAX:
                return
            yield os.path.join(at, name)
