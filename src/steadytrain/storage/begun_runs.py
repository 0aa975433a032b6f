"""Runs without a step: the script started, and its folder is still empty.

A run writes nothing before its first step. Its folder goes when a script ends without one; a killed process leaves it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.storage.run_folder import RUN_FILE, part_of_run

RECENT_S = 3600.0
"""An empty folder that is older belongs to a process that was killed."""


@dataclass(frozen=True)
class Begun:
    """An empty run folder and when it was made, in seconds since the epoch."""

    path: Path
    made: float

    @property
    def sentence(self) -> str:
        """Such as ``train-20261127-021124 began 6 s ago and has no step yet``."""
        return f"{self.path.name} began {max(0.0, time.time() - self.made):.0f} s ago and has no step yet"

    @property
    def advice(self) -> str:
        """What to do. The folder is empty: whether the process still runs is not known."""
        return "call this again in a moment, or start it again if its process was killed"


def begun_runs(runs_dir: Path) -> tuple[Begun, ...]:
    """The runs of the last hour that have no step yet, the newest first. Hidden folders are not runs."""
    try:
        return scan(runs_dir).begun
    except own(OSError):
        return ()


@dataclass(frozen=True)
class Scan:
    """What one look into a folder of runs finds: the folders of runs, in no order, and the runs without a step. Of a
    run of which only some ranks recorded here, the folder of the first of these."""

    runs: tuple[Path, ...]
    begun: tuple[Begun, ...]


def scan(runs_dir: Path) -> Scan:
    """One stat for each run: a folder may hold thousands.

    Raises:
        OSError: the folder cannot be read.
    """
    runs, begun, oldest = [], [], time.time() - RECENT_S
    with os.scandir(runs_dir) as entries:
        for entry in entries:
            if os.path.isfile(f"{entry.path}/{RUN_FILE}"):
                runs.append(runs_dir / entry.name)
            elif not entry.name.startswith(".") and (part := part_of_run(runs_dir / entry.name)) is not None:
                runs.append(part)
            elif not entry.name.startswith("."):
                begun += _begun(entry, oldest)
    return Scan(tuple(runs), tuple(sorted(begun, key=lambda one: -one.made)))


def _begun(entry: os.DirEntry[str], oldest: float) -> list[Begun]:
    """The entry as a run without a step, if it is one. Empty if it goes in the meantime, or cannot be read."""
    with unless_it_fails(OSError):
        if entry.is_dir() and entry.stat().st_mtime > oldest and not os.listdir(entry.path):
            return [Begun(Path(entry.path), entry.stat().st_mtime)]
    return []
