"""One line of a listing: what it says of a run, from ``run.json`` and a few rows of the index.

A folder may hold thousands of runs, so a summary decodes no symptom and no action, and a run that ends keeps what its
index says in a file of its own: opening an index takes three times as long as all else. Not here: which runs there are
(``run_search``), and all that a run holds (``run_folder``).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.model import SEVERITIES, Severity, worst
from steadytrain.storage.bundle import write_json
from steadytrain.storage.index_reading import open_index
from steadytrain.storage.left_overs import ended_or_state
from steadytrain.storage.run_folder import (
    bundles_inside,
    description_started,
    read_description,
    steps_of,
)
from steadytrain.storage.run_index import INDEX_FILE, SIDE_FILES

INCIDENTS_MAX = 10_000
KEPT_FILE = "summary.json"
SCHEMA = "steadytrain.summary/1"
KEPT_INCIDENTS_MAX = 256
KEPT_BYTES_MAX = 1 << 16


@dataclass(frozen=True)
class RunSummary:
    """One line of ``steadytrain runs``."""

    name: str
    path: Path
    started: str
    command: str
    ended: str | None
    steps: int
    worst: Severity | None
    incidents: int
    state: str
    """``ended``, or what is known of a run that did not record it."""


def summary_of(path: Path) -> RunSummary:
    """The summary of the run in a folder.

    Raises:
        UsageError: not a run folder, damaged, or of a newer format.
    """
    description = read_description(path)
    ending = _kept(path) or _ending(path)
    argv = description.get("argv")
    return RunSummary(
        name=str(description.get("name") or os.path.basename(os.path.abspath(path))),
        path=path,
        started=description_started(description),
        command=" ".join(map(str, argv)) if isinstance(argv, list) else "",
        ended=ending.ended,
        steps=ending.steps,
        worst=worst([severity for severity in SEVERITIES if severity in ending.severities]),
        incidents=len(bundles_inside(path, ending.incidents)),
        state=ended_or_state(ending.ended, description),
    )


def keep_summary(path: Path) -> None:
    """Keep in the folder of a run that has ended what a listing asks its index and its steps for.

    It counts only as long as both are as they are now, so nothing has to keep it up to date.

    Raises:
        OSError: the folder cannot be written.
        UsageError: its index cannot be read.
    """
    ending, now = _ending(path), _state_of_files(path)
    if now is not None and ending.ended is not None and len(ending.incidents) <= KEPT_INCIDENTS_MAX:
        write_json(path / KEPT_FILE, {"schema": SCHEMA, "of": now, **asdict(ending)})


@dataclass(frozen=True)
class _Ending:
    """What a listing asks an index and the steps for. ``incidents`` are paths within the run folder."""

    ended: str | None
    severities: tuple[str, ...]
    incidents: tuple[str, ...]
    steps: int


def _ending(path: Path) -> _Ending:
    with open_index(path) as index:
        ended = index.execute("SELECT value FROM facts WHERE name = 'ended'").fetchone()
        ended = None if ended is None else json.loads(ended[0])
        found = {name for (name,) in index.execute("SELECT DISTINCT severity FROM symptoms LIMIT 10")}
        bundles = [name for (name,) in index.execute(f"SELECT path FROM incidents LIMIT {INCIDENTS_MAX}")]
        unknown = found.difference(SEVERITIES)
        if unknown:
            raise ValueError(f"a severity that is none: {str(min(map(str, unknown)))[:40]}")
    return _Ending(ended if isinstance(ended, str) else None, tuple(found), tuple(bundles), steps_of(path))


def _kept(path: Path) -> _Ending | None:
    """What :func:`keep_summary` kept, None if that is not there, or the run has changed since."""
    try:
        kept, now = read_json(os.path.join(path, KEPT_FILE), bytes_max=KEPT_BYTES_MAX), _state_of_files(path)
        if now is None or kept["of"] != now:
            return None
        ended, severities, incidents, steps = (kept[name] for name in ("ended", "severities", "incidents", "steps"))
        if not isinstance(ended, str) or type(steps) is not int or not set(severities).issubset(SEVERITIES):
            return None
        return _Ending(ended, tuple(severities), tuple(map(os.fspath, incidents)), steps)
    except (OSError, ValueError, LookupError, TypeError, UsageError):
        return None


def _state_of_files(path: Path) -> list[int] | None:
    """Size and times of the index and of the folders of steps. None while a process writes, and without a step."""
    if os.path.exists(os.path.join(path, f"{INDEX_FILE}{SIDE_FILES[0]}")):
        return None
    try:
        index = os.stat(os.path.join(path, INDEX_FILE))
        with os.scandir(os.path.join(path, "steps")) as streams:
            names = sorted(stream.path for stream in streams if stream.is_dir())
    except FileNotFoundError:
        return None
    return [index.st_size, index.st_mtime_ns, *(os.stat(name).st_mtime_ns for name in names)]
