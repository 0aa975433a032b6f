"""A run that is about to be watched, as one value: what was chosen, where it lies, and what it is.

It travels whole: as JSON in the environment to the processes that the script starts, and to the watcher as its
settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.attach.folder_names import free_folder, start_stamp
from steadytrain.attach.options import Options
from steadytrain.core.levels import find_level
from steadytrain.core.version import __version__
from steadytrain.storage.redaction import redact_arguments

if TYPE_CHECKING:
    from steadytrain.capture.settings import Settings


@dataclass(frozen=True)
class WatchedRun:
    """``run_dir`` is absolute; ``continues`` is the run that this one goes on from (``steadytrain.storage``);
    ``description`` becomes ``run.json``; ``pid`` is the process that began the run."""

    options: Options
    run_dir: str
    continues: Mapping[str, Any] | None
    diff: str | None
    description: dict[str, Any]
    pid: int

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "options": self.options.to_json()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> WatchedRun:
        return WatchedRun(**{**data, "options": Options(**data["options"])})

    def settings(self) -> Settings:
        """What the watcher needs of it: bounds in bytes, the level itself."""
        from steadytrain.capture.settings import Settings

        options = self.options
        return Settings(
            run_dir=Path(self.run_dir),
            run_name=self.description["name"],
            policy=options.policy,
            level=find_level(options.level),
            state_bytes_max=options.state_mb * 1_000_000,
            in_graph=options.compiled == "inside",
            continues=self.continues,
            rewind_bytes_max=options.rewind_mb * 1_000_000,
            keep_rewind=options.keep_rewind,
            description=self.description,
            diff=self.diff,
        )


def begin_run(script: str, stem: str, command: Sequence[str], options: Options, *, is_module: bool) -> WatchedRun:
    """Choose the folder of the run and write down what it is.

    Raises:
        UsageError: a run of that name exists, or the one that it goes on from does not.
    """
    from steadytrain.capture.incident.git import git_diff, git_state

    continues = None
    if options.continues is not None:
        from steadytrain.storage.continued_run import which_run

        continues = which_run(options.continues, Path(options.runs_dir))
    folder = Path.cwd() if is_module else Path(script).absolute().parent
    name = options.name or f"{stem}-{start_stamp()}"
    run_dir = free_folder(Path(options.runs_dir).absolute(), name, named=options.name is not None)
    description = {
        "name": run_dir.name,
        "argv": redact_arguments(list(command)),
        "script": None if is_module else str(Path(script).absolute()),
        "module": script if is_module else None,
        "cwd": os.getcwd(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "policy": options.policy,
        "level": options.level,
        "continues": continues,
        "python": sys.version.split()[0],
        "git": git_state(folder),
        "steadytrain": __version__,
        "pid": os.getpid(),
    }
    return WatchedRun(options, str(run_dir), continues, git_diff(folder), description, os.getpid())
