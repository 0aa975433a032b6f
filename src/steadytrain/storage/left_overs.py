"""What a killed process leaves half-written in its run folder: the next run beside it takes it away.

Unfinished bundles have a name of their own (``staged_bundle.py``). From a finished bundle only documents are removed
that an ended process wrote and never renamed. A bundle that another command is changing, and the trials of one, are
left alone: the process of the run is gone, but that of the command may not be.
"""

from __future__ import annotations

import heapq
import os
import re
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import unless_it_fails
from steadytrain.storage.processes import MARK, is_gone, process_mark, process_start, state_of
from steadytrain.storage.run_index import RECOVERED
from steadytrain.storage.signal_notes import ended_by
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER
from steadytrain.storage.stopped_recording import STOPPED_FILE

RUNS_MAX = 32
"""The runs changed last that are looked at, so that a folder of thousands costs no more than one listing."""

BUNDLES_MAX = 256
ENTRIES_MAX = 100_000
DESCRIPTION_BYTES_MAX = 1 << 20
PROCESS = "process"
"""The field of ``run.json`` with the mark of the process that writes the run."""

PROCESS_START = "process_start"
"""The field of ``run.json`` with the time at which that process started: numbers of processes are given again."""

UNFINISHED = ".part"
OWN_FOLDERS = ("steps", "tables", "tape", "snapshots", "saved")
"""What commands write (incidents, trials) and what other tools write lies elsewhere."""

_BESIDE = re.compile(rf"\..+\.({MARK})\.\w+")
_FIRST = re.compile(rf"\.run\.json\.({MARK})")


def mark_of_process() -> dict[str, Any]:
    """The fields of ``run.json`` that say which process writes the run: this one."""
    return {PROCESS: process_mark(), PROCESS_START: process_start()}


def ended_or_state(ended: str | None, description: dict[str, Any], run: Path | None = None) -> str:
    """How a run ended; if it did not record that: ``running``, ``killed``, or ``not recorded`` if nobody knows."""
    if ended is not None:
        return ended
    if run is not None and ended_by(run) is not None:
        return "killed"
    state = state_of(description.get(PROCESS), description.get(PROCESS_START))
    if state == "gone" and run is not None and (run / STOPPED_FILE).exists():
        return "not recorded"  # on a full disk the end had no room either
    return {"running": "running", "gone": "killed"}.get(state or "", "not recorded")


def write_first(path: Path, mark: str, text: str) -> None:
    """Write ``run.json`` atomically, the first file of a run: until it is there, a hidden name says who writes it."""
    written = path.with_name(f".{path.name}.{mark}")
    try:
        written.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(written, path)
    except BaseException:
        with unless_it_fails(OSError):
            written.unlink(missing_ok=True)
        raise


def clear_left_overs(runs_dir: Path) -> None:
    """Remove what ended processes of this machine left half-written in the last runs of a folder. Raises nothing."""
    with unless_it_fails(OSError):
        with os.scandir(runs_dir) as entries:
            found = [(entry.stat().st_mtime, entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        for _, run in heapq.nlargest(RUNS_MAX, found):
            _clear(Path(run))


def clear_beside(folder: Path) -> None:
    """Remove what ended processes of this machine wrote in ``folder`` beside JSON documents, and never renamed.

    Raises nothing.
    """
    with unless_it_fails(OSError):
        for name in os.listdir(folder):
            named = _BESIDE.fullmatch(name)
            if named and is_gone(named[1]):
                (folder / name).unlink(missing_ok=True)


def _clear(run: Path) -> None:
    with unless_it_fails(OSError, UsageError, ValueError, RecursionError):
        _clear_first(run)
        description = read_json(run / "run.json", bytes_max=DESCRIPTION_BYTES_MAX)
        if isinstance(description, dict) and is_gone(description.get(PROCESS)):
            clear_beside(run)
            for bundle in _bundles(run):
                clear_beside(bundle)
            for path in _unfinished(run):
                with unless_it_fails(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        clear_left_overs(run / "ranks")


def _clear_first(run: Path) -> None:
    """A process that ended before it had described its run leaves a folder with nothing in it."""
    for path in run.glob(".run.json.*"):
        named = _FIRST.fullmatch(path.name)
        if named and is_gone(named[1]):
            path.unlink(missing_ok=True)
            with unless_it_fails(OSError):
                run.rmdir()


def _bundles(run: Path) -> list[Path]:
    """The folders of a run's finished bundles; a link may lead to another run."""
    folder = run / INCIDENTS_FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [Path(one.path) for one in islice(entries, BUNDLES_MAX) if one.is_dir(follow_symlinks=False)]


def _unfinished(run: Path) -> Iterator[Path]:
    """Half-written files and folders, in the folders that the process of the run alone writes."""
    yield from run.glob(f"{RECOVERED}*")
    left = ENTRIES_MAX
    for own in OWN_FOLDERS:
        for at, folders, names in os.walk(run / own):
            for name in [*folders, *names]:
                left -= 1
                if left < 0:
                    return
                if name.startswith(".") or name.endswith(UNFINISHED):
                    yield Path(at, name)
            folders[:] = [name for name in folders if not name.endswith(UNFINISHED)]
