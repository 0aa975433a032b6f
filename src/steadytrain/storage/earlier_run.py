"""The newest earlier run of the same command, in the folder of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own
from steadytrain.storage.run_folder import RUN_FILE, Run, description_started, open_run, read_description

FOLDERS_MAX = 32
"""Folders that are read, the newest first."""

_SAME = ("script", "module", "argv", "cwd")


def newest_before(folder: Path, description: dict[str, Any]) -> Run | None:
    """The newest run beside ``folder`` that has the command of ``description`` and began before it."""
    started = description_started(description)
    found: list[tuple[str, Path]] = []
    for path in _newest_folders(folder.parent):
        try:
            other = read_description(path)
        except UsageError:
            continue
        if _same_command(other, description) and description_started(other) < started:
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
    except own(OSError):
        return []
    paths = [Path(path) for _, path in sorted(dated, reverse=True)]
    return [path for path in paths[:FOLDERS_MAX] if (path / RUN_FILE).is_file()]
