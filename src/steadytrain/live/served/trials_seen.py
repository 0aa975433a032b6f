"""What is known of trials while `diagnose` runs elsewhere: which have finished, from their files. None is opened."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from steadytrain.experiments.outcome_files import trials_folder
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER

TRIALS_MAX = 200
INCIDENTS_MAX = 50
_OUTCOME = re.compile(r"([a-z0-9][a-z0-9-]{0,80})-[0-9a-f]{16}\.json")


def finished_trials(run: Path) -> list[dict[str, Any]]:
    """For each incident with trials, and for the run itself: the names of those that ended, in their order."""
    found = []
    for source in (*_bundles(run), run):
        names = _names(trials_folder(source))
        if names:
            found.append({"incident": "" if source == run else source.name, "finished": names[-TRIALS_MAX:]})
    return found


def answer_places(run: Path) -> tuple[Path, ...]:
    """Folders whose time of change says that an answer or an incident came."""
    return (run, run / INCIDENTS_FOLDER, *(trials_folder(source) for source in (*_bundles(run), run)))


def _bundles(run: Path) -> list[Path]:
    try:
        with os.scandir(run / INCIDENTS_FOLDER) as entries:
            names = [one.name for one in entries if one.is_dir(follow_symlinks=False) and one.name.startswith("step-")]
    except OSError:
        return []
    return [run / INCIDENTS_FOLDER / name for name in sorted(names)[-INCIDENTS_MAX:]]


def outcome_files(folder: Path) -> list[tuple[str, int]]:
    """The names of the outcomes of trials with their times of change, the oldest first."""
    try:
        with os.scandir(folder) as entries:
            files = [(one.stat().st_mtime_ns, one.name) for one in entries if _OUTCOME.fullmatch(one.name)]
    except OSError:
        return []
    return [(name, changed_ns) for changed_ns, name in sorted(files)]


def _names(folder: Path) -> list[str]:
    return [match[1] for name, _ in outcome_files(folder) if (match := _OUTCOME.fullmatch(name))]
