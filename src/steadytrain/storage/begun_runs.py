"""Runs without a step: the script started, and its folder is still empty.

A run writes nothing before its first step. Its folder goes when a script ends without one; a killed process leaves it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

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


def begun_runs(runs_dir: Path) -> list[Begun]:
    """The runs of the last hour that have no step yet, the newest first. Hidden folders are not runs."""
    found = []
    try:
        with os.scandir(runs_dir) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_dir() and not os.listdir(entry.path):
                    found.append(Begun(Path(entry.path), entry.stat().st_mtime))
    except OSError:
        return []
    return sorted((one for one in found if time.time() - one.made < RECENT_S), key=lambda one: -one.made)
