"""Whether a run passed the step at which an earlier run of the same command went wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.model import Symptom
from steadytrain.report.wording import clean, count
from steadytrain.storage.run_folder import RUN_FILE, Run, description_started, open_run, read_description

FOLDERS_MAX = 32
"""Folders that are read, the newest first."""

_SAME = ("script", "module", "argv", "cwd")


def passed_lines(run: Run, last_step: int) -> tuple[str, ...]:
    """Says that the symptom of the newest earlier run of the same command did not come again; nothing without one.

    Args:
        last_step: the last step of ``run``.
    """
    own = [symptom for symptom in run.symptoms if symptom.severity != "note"]
    if own or not run.description.get("argv"):
        return ()
    earlier = _newest_before(run)
    symptom = _first_alarm(earlier) if earlier is not None else None
    if earlier is None or symptom is None or symptom.first_step > last_step:
        return ()
    where = f"step {count(symptom.first_step)}, where {clean(earlier.name)}, an earlier run of the same command"
    return (f"It passed {where}, had {clean(symptom.name)}.",)


def _first_alarm(run: Run) -> Symptom | None:
    alarms = [symptom for symptom in run.symptoms if symptom.severity != "note"]
    return min(alarms, key=lambda one: (one.first_step, one.severity != "critical"), default=None)


def _newest_before(run: Run) -> Run | None:
    started = description_started(run.description)
    found: list[tuple[str, Path]] = []
    for path in _newest_folders(run.path.parent):
        try:
            other = read_description(path)
        except UsageError:
            continue
        if _same_command(other, run.description) and description_started(other) < started:
            found.append((description_started(other), path))
    try:
        return open_run(max(found)[1]) if found else None
    except UsageError:
        return None


def _same_command(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in _SAME)


def _newest_folders(runs_dir: Path) -> list[Path]:
    try:
        with os.scandir(runs_dir) as entries:
            dated = [(entry.stat().st_mtime, entry.path) for entry in entries if entry.is_dir()]
    except OSError:
        return []
    paths = [Path(path) for _, path in sorted(dated, reverse=True)]
    return [path for path in paths[:FOLDERS_MAX] if (path / RUN_FILE).is_file()]
