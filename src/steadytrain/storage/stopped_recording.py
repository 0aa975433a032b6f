"""Says in the run folder that nothing more was recorded, and why: a file that is there even if it has no room."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.storage.documents import as_json

STOPPED_FILE = "recording-stopped.json"
WHY_LENGTH_MAX = 400
BYTES_MAX = 1 << 16


def write_stopped(run: Path, *, step: int | None, why: str) -> None:
    """Note that the recording of the run folder ``run`` stopped at ``step``. Raises nothing.

    A full disk has room for a name. The file is empty then.
    """
    text = as_json({"step": step, "why": why[:WHY_LENGTH_MAX]}) + "\n"
    with unless_it_fails(OSError):
        file = os.open(run / STOPPED_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with unless_it_fails(OSError), open(file, "wb", buffering=0) as stream:
            stream.write(text.encode(errors="backslashreplace"))


def read_stopped(run: Path) -> dict[str, Any] | None:
    """``step`` and ``why`` of a recording that stopped, both None if they are not known; None if it did not stop."""
    unknown = {"step": None, "why": None}
    try:
        found = read_json(run / STOPPED_FILE, bytes_max=BYTES_MAX)
    except FileNotFoundError:
        return None
    except own(OSError, UsageError, ValueError, RecursionError):
        return unknown
    if not isinstance(found, dict):
        return unknown
    step, why = found.get("step"), found.get("why")
    return {"step": step if isinstance(step, int) else None, "why": why if isinstance(why, str) else None}


def stopped_sentence(run: Path) -> tuple[str, ...]:
    """What a report says of it, if it stopped."""
    found = read_stopped(run)
    if found is None:
        return ()
    step = "" if found["step"] is None else f" at step {found['step']}"
    return (f"The recording of this run stopped{step}{': ' + found['why'] if found['why'] else ''}.",)
