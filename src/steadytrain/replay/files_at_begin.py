"""The files that a recorded run began with, for a script that is launched again. Torch-free.

A script that resumes by itself starts from the newest checkpoint that it finds. The recorded run wrote some of these
itself: the relaunched script does not see them. Where that run read a checkpoint and later overwrote it, the script
reads the earlier content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.storage.checkpoint_pins import READ_FACT, SAVED_FACT, is_as_recorded
from steadytrain.storage.rank_group import own_folder, run_of_all
from steadytrain.storage.run_folder import RUN_FILE, open_run

ENTRIES_MAX = 1000
FILES_MAX = 256
NAMES_SHOWN = 3
_OF_ONE_STEP = re.compile(r"\d")
"""A folder with a number in its name is one checkpoint. Another one may be there for all of them."""


@dataclass(frozen=True)
class FilesAtBegin:
    """``hidden``: checkpoints that the recorded run wrote. ``instead``: where the earlier content of a path lies.
    ``lost``: paths that it read and whose content is gone. All paths are absolute."""

    hidden: tuple[str, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """The sentences that a command prints before it launches the script."""
        told = []
        if self.hidden:
            what = "checkpoint" if len(self.hidden) == 1 else "checkpoints"
            told.append(f"without {len(self.hidden)} {what} that the recorded run wrote: {_names(self.hidden)}")
        if self.instead:
            told.append(f"with the checkpoint that the recorded run read, as it was then: {_names([*self.instead])}")
        if self.lost:
            told.append(f"the recorded run read {_names(self.lost)}, which has changed since: the script may differ")
        return told


def files_at_begin(source: Path) -> FilesAtBegin:
    """What the facts of the run of ``source``, a run folder or a bundle in one, say; nothing if they are not there."""
    hidden: dict[str, None] = {}
    instead: dict[str, str] = {}
    lost: list[str] = []
    for run in _runs(source):
        try:
            facts, began = open_run(run).facts, (run / RUN_FILE).stat().st_mtime
        except (UsageError, OSError):
            continue
        read = found if isinstance(found := facts.get(READ_FACT), Mapping) else {}
        for path in _written(facts.get(SAVED_FACT)):
            if path not in read:
                hidden[_whole(path, began)] = None
        for path, known in read.items():
            if not isinstance(known, Mapping) or is_as_recorded(path, known.get("file")):
                continue
            held = os.path.realpath(run / str(known.get("held") or ""))
            if os.path.isfile(held) and Path(held).is_relative_to(os.path.realpath(run)):
                instead[path] = held
            else:
                lost.append(path)
    return FilesAtBegin(tuple(path for path in hidden if os.path.lexists(path)), instead, tuple(lost))


def _runs(source: Path) -> Iterator[Path]:
    """The run folder, and that of the first rank, which often writes for all."""
    for run in dict.fromkeys((own_folder(source), run_of_all(source))):
        if (run / RUN_FILE).is_file():
            yield run


def _written(saved: Any) -> Iterator[str]:
    for entry in saved[-ENTRIES_MAX:] if isinstance(saved, list) else ():
        if not isinstance(entry, Mapping):
            continue
        files = entry.get("files")
        for path in (*files, entry.get("path")) if isinstance(files, Mapping) else (entry.get("path"),):
            if isinstance(path, str) and os.path.isabs(path):
                yield path


def _whole(path: str, began: float) -> str:
    """The folder of a checkpoint of several files, if the run made it and it is of one step; else the file."""
    parent = Path(path).parent
    if not _OF_ONE_STEP.search(parent.name) or Path(path).is_dir():
        return path
    try:
        files = [entry.stat().st_mtime for entry, _ in zip(os.scandir(parent), range(FILES_MAX), strict=False)]
    except OSError:
        return path
    return str(parent) if files and min(files) >= began and len(files) < FILES_MAX else path


def _names(paths: tuple[str, ...] | list[str]) -> str:
    more = len(paths) - NAMES_SHOWN
    return ", ".join(paths[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
