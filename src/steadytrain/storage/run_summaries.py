"""One line of a listing: what it says of a run, from ``run.json`` and a few rows of the index.

A folder may hold thousands of runs, so a summary decodes no symptom and no action, and a run that ends keeps what its
index says in a file of its own: opening an index takes three times as long as all else. Not here: which runs there are
(``run_search``), and all that a run holds (``run_folder``).
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.model import SEVERITIES, Severity, worst
from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.storage.bundle import MANIFEST, write_json
from steadytrain.storage.index_reading import open_index
from steadytrain.storage.left_overs import ended_or_state
from steadytrain.storage.rank_endings import first_end_of, has_lost_rank
from steadytrain.storage.ranks_of_run import rank_folder, recorded_ranks
from steadytrain.storage.run_folder import (
    bundles_inside,
    description_started,
    read_description,
    steps_of,
)
from steadytrain.storage.run_index import INDEX_FILE, SIDE_FILES
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER
from steadytrain.storage.stalls import STALLS

INCIDENTS_MAX = 10_000
KEPT_FILE = "summary.json"
SCHEMA = "steadytrain.summary/1"
KEPT_INCIDENTS_MAX = 256
KEPT_BYTES_MAX = 1 << 16
SYMPTOMS_MAX = 10_000
KEPT_SYMPTOMS_MAX = 32
DEVICES_MAX = 64
RANKS_MAX = 64
BROKEN = ("failed", "killed", "not recorded")
"""The states of a run whose ranks are asked which of them ended first."""


@dataclass(frozen=True)
class Ending:
    """What a listing asks an index and the steps for.

    ``symptoms`` are (name, severity, first step), the gravest and then the earliest first; ``incidents`` are paths
    within the run folder, ``devices`` the names of the GPUs in use, or of the processor. ``of_ranks`` are the paths of
    the incidents that the other ranks kept, None if a summary of an older version does not say.
    """

    ended: str | None
    symptoms: tuple[tuple[str, Severity, int], ...]
    incidents: tuple[str, ...]
    steps: int
    devices: tuple[str, ...]
    of_ranks: tuple[str, ...] | None = ()
    stalled: bool = False
    """Whether the steps stood still for long and then went on."""


@dataclass(frozen=True)
class RunSummary:
    """One line of ``steadytrain runs``."""

    name: str
    path: Path
    started: str
    command: str
    ending: Ending
    incidents: int
    state: str
    """``ended``, or what is known of a run that did not record it."""

    first_rank: int | None = None
    """Of several ranks, the one with which the run ended; None if it ended well, or if no record says."""

    @property
    def ended(self) -> str | None:
        return self.ending.ended

    @property
    def steps(self) -> int:
        return self.ending.steps

    @property
    def worst(self) -> Severity | None:
        """The gravest severity of its symptoms."""
        return worst([severity for _, severity, _ in self.ending.symptoms])


def summary_of(path: Path) -> RunSummary:
    """The summary of the run in a folder.

    Raises:
        UsageError: not a run folder, damaged, or of a newer format.
    """
    description = read_description(path)
    kept = _kept(path)
    ending = replace(kept, of_ranks=_bundles_of_ranks(path)) if kept is not None else _ending(path)
    argv = description.get("argv")
    state = ended_or_state(ending.ended, description)
    first = first_end_of(path) if state in BROKEN or has_lost_rank(path) else None
    return RunSummary(
        name=str(description.get("name") or os.path.basename(os.path.abspath(path))),
        path=path,
        started=description_started(description),
        command=" ".join(map(str, argv)) if isinstance(argv, list) else "",
        ending=ending,
        incidents=count_incidents([one.name for one in bundles_inside(path, ending.incidents)], ending.of_ranks),
        state=state,
        first_rank=first.end.rank if first is not None else None,
    )


def count_incidents(own: Iterable[str], of_ranks: Iterable[str] | None) -> int:
    """The number of incidents: one that several ranks kept counts once. ``own`` are names, the others paths."""
    return len({*own, *(path.rpartition("/")[2] for path in of_ranks or ())})


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


def kept_ending(kept: Any) -> Ending:
    """The ending in a document that :func:`keep_summary` wrote.

    Raises:
        LookupError, TypeError, ValueError: it is not one, or of an older version.
    """
    ended, incidents, steps, devices = (kept[name] for name in ("ended", "incidents", "steps", "devices"))
    symptoms = tuple((str(name), _severity(severity), int(step)) for name, severity, step in kept["symptoms"])
    if not isinstance(ended, str) or type(steps) is not int or not all(isinstance(name, str) for name in devices):
        raise TypeError("not a summary")
    of_ranks = tuple(map(os.fspath, kept["of_ranks"])) if "of_ranks" in kept else None
    incident_paths, stalled = tuple(map(os.fspath, incidents)), bool(kept.get("stalled"))
    return Ending(ended, symptoms, incident_paths, steps, tuple(devices), of_ranks, stalled)


def _ending(path: Path) -> Ending:
    with open_index(path) as index:
        ended, machine, stalls = (_fact(index, name) for name in ("ended", "machine", STALLS))
        rows = index.execute(f"SELECT name, severity, first_step FROM symptoms ORDER BY rowid LIMIT {SYMPTOMS_MAX}")
        symptoms = [(str(name), _severity(severity), int(step)) for name, severity, step in rows]
        bundles = [name for (name,) in index.execute(f"SELECT path FROM incidents LIMIT {INCIDENTS_MAX}")]
    symptoms.sort(key=lambda one: (-SEVERITIES.index(one[1]), one[2]))  # each name once, its gravest first
    of_names: dict[str, tuple[str, Severity, int]] = {}
    for one in symptoms:
        of_names.setdefault(one[0], one)
    kept = tuple(of_names.values())[:KEPT_SYMPTOMS_MAX]
    how, of_ranks = ended if isinstance(ended, str) else None, _bundles_of_ranks(path)
    return Ending(how, kept, tuple(bundles), steps_of(path), _devices(machine), of_ranks, bool(stalls))


def _bundles_of_ranks(path: Path) -> tuple[str, ...]:
    """The paths within a run folder of the incidents of other ranks."""
    found: list[str] = []
    for rank in recorded_ranks(path)[:RANKS_MAX]:
        at = os.path.relpath(rank_folder(path, rank) / INCIDENTS_FOLDER, path)
        with unless_it_fails(OSError), os.scandir(path / at) as entries:
            names = (one.name for one in entries if not one.name.startswith("."))
            found += [f"{at}/{name}" for name in names if os.path.isfile(path / at / name / MANIFEST)]
    return tuple(sorted(found)[:KEPT_INCIDENTS_MAX])


def _fact(index: sqlite3.Connection, name: str) -> Any:
    found = index.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if found is None else json.loads(found[0])


def _severity(name: Any) -> Severity:
    if name not in SEVERITIES:
        raise ValueError(f"a severity that is none: {str(name)[:40]}")
    found: Severity = name
    return found


def _devices(machine: Any) -> tuple[str, ...]:
    """The names of the GPUs, or of the processor, in the fact ``machine``."""
    try:
        gpus = [gpu["name"] for gpu in (machine.get("accelerators") or {}).get("gpus", ())][:DEVICES_MAX]
        names = gpus or [machine["host"]["processor"]]
    except (LookupError, TypeError, AttributeError):
        return ()
    return tuple(name for name in names if isinstance(name, str) and name)


def _kept(path: Path) -> Ending | None:
    """What :func:`keep_summary` kept, None if that is not there, or the run has changed since."""
    try:
        kept, now = read_json(os.path.join(path, KEPT_FILE), bytes_max=KEPT_BYTES_MAX), _state_of_files(path)
        return kept_ending(kept) if now is not None and kept["of"] == now else None
    except own(OSError, ValueError, LookupError, TypeError, UsageError):
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
