"""A run that is about to be watched, as one value: its options, its folder, and its description.

It is passed as a whole: as JSON in the environment to child processes, and as settings to the watcher.
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
from steadytrain.capture.hooks.seeding import AS_IT_IS, KEY, Randomness
from steadytrain.core.levels import find_level
from steadytrain.core.version import __version__
from steadytrain.storage.redaction import redact_arguments

if TYPE_CHECKING:
    from steadytrain.capture.settings import Settings
    from steadytrain.guard.resume_plan import ResumePlan


@dataclass(frozen=True)
class WatchedRun:
    """``run_dir`` is absolute. ``continues`` is the run that this one continues (``steadytrain.storage``).
    ``description`` becomes ``run.json``. ``pid`` is the process that started the run."""

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

    def _resume(self) -> ResumePlan | None:
        if self.options.resume_from is None:
            return None
        from steadytrain.guard.resume_plan import plan_resume

        return plan_resume(self.options.resume_from, self.options.fixes, Path(self.options.runs_dir))

    def settings(self) -> Settings:
        """The watcher's settings: bounds in bytes, and the level as a value."""
        from steadytrain.capture.settings import Settings
        from steadytrain.capture.step.pacing import Pace
        from steadytrain.guard.guard_steering import GuardSteering

        options = self.options
        policy = options.steering_policy()
        return Settings(
            run_dir=Path(self.run_dir),
            run_name=self.description["name"],
            policy="steady" if policy.acts else policy.plain,
            max_skips=policy.budget.skips_in_a_row,
            steering=GuardSteering(policy, self._resume()),
            level=find_level(options.level),
            state_bytes_max=options.state_mb * 1_000_000,
            in_graph=options.compiled == "inside",
            continues=self.continues,
            rewind_bytes_max=options.rewind_mb * 1_000_000,
            keep_rewind=options.keep_rewind,
            checkpoint_bytes_max=options.checkpoints_mb * 1_000_000,
            pace=None if options.every_step or policy.acts else Pace(),
            description=self.description,
            diff=self.diff,
        )


def begin_run(
    script: str,
    stem: str,
    command: Sequence[str],
    options: Options,
    *,
    is_module: bool,
    randomness: Randomness = AS_IT_IS,
) -> WatchedRun:
    """Choose the folder of the run and collect its description.

    Raises:
        UsageError: a run of that name exists, or the run to continue does not.
    """
    from steadytrain.capture.incident.git import git_diff, git_state

    continues = None
    if options.continues is not None:
        from steadytrain.storage.continued_run import which_run

        continues = which_run(options.continues, Path(options.runs_dir))
    if options.resume_from is not None:
        from steadytrain.guard.resume_plan import plan_resume

        continues = plan_resume(options.resume_from, options.fixes, Path(options.runs_dir)).continues
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
        **({KEY: randomness.to_json()} if randomness.given else {}),
    }
    return WatchedRun(options, str(run_dir), continues, git_diff(folder), description, os.getpid())
