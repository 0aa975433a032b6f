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

from steadytrain.attach.folder_names import free_folder, made_here, start_stamp, torchrun_shares, without_secrets
from steadytrain.attach.messages import tell
from steadytrain.attach.options import NO_RUN, Options
from steadytrain.attach.restarted_run import earlier_try, elastic_restarts, name_of_try, report_other_number
from steadytrain.attach.slurm_job import KEY as SLURM
from steadytrain.attach.slurm_job import earlier_run, given_name, job_here, shared_name
from steadytrain.capture.hooks.seeding import AS_IT_IS, KEY, Randomness
from steadytrain.core.interactive import Typed
from steadytrain.core.levels import find_level
from steadytrain.core.version import __version__
from steadytrain.exporters.addresses import refuse_bad_addresses
from steadytrain.storage.redaction import redact_arguments

if TYPE_CHECKING:
    from steadytrain.capture.settings import Settings
    from steadytrain.guard.resume_plan import ResumePlan


@dataclass(frozen=True)
class WatchedRun:
    """``run_dir`` is absolute. ``continues`` is the run that this one continues (``steadytrain.storage``).
    ``description`` becomes ``run.json``. ``pid`` is the process that started the run. ``shared``:
    the tasks of a SLURM job step are ranks of this run."""

    options: Options
    run_dir: str
    continues: Mapping[str, Any] | None
    diff: str | None
    description: dict[str, Any]
    pid: int
    shared: bool = False

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
            shares_folder=self.shared or torchrun_shares(),
            made_folder=made_here(Path(self.run_dir)),
        )


def begin_run(
    script: str,
    stem: str,
    command: Sequence[str],
    options: Options,
    *,
    is_module: bool,
    randomness: Randomness = AS_IT_IS,
    typed_into: Typed | None = None,
) -> WatchedRun:
    """Choose the folder of the run and collect its description. ``script`` is "" if nothing can be launched again.

    Raises:
        UsageError: a run of that name exists, the run to continue does not, or an address of alerts or of a tool is
            malformed.
    """
    from steadytrain.capture.incident.git import git_diff, git_state

    _check_addresses(options)
    argv = redact_arguments(list(command))
    shared = shared_name(stem)
    name = without_secrets(options.name or shared or f"{stem}-{start_stamp()}")
    continues, job = None, job_here()
    if options.continues is None and options.resume_from is None:
        continues = earlier_run(job, argv, Path(options.runs_dir)) or earlier_try(name, Path(options.runs_dir))
    elif options.continues not in (None, NO_RUN):
        from steadytrain.storage.continued_run import which_run

        continues = which_run(options.continues, Path(options.runs_dir))
    if options.resume_from is not None:
        from steadytrain.guard.resume_plan import plan_resume

        continues = plan_resume(options.resume_from, options.fixes, Path(options.runs_dir)).continues
    report_other_number(continues)
    folder = Path.cwd() if is_module or not script else Path(script).absolute().parent
    named, is_shared = options.name is not None, shared is not None
    own_name = name_of_try(given_name(name, job, shared=is_shared) if named else name, elastic_restarts())
    run_dir = free_folder(Path(options.runs_dir).absolute(), own_name, named=named, shared=is_shared)
    description = {
        "name": run_dir.name,
        "argv": argv,
        "script": None if is_module or not script else str(Path(script).absolute()),
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
        **({SLURM: job} if job is not None else {}),
        **({KEY: randomness.to_json()} if randomness.given else {}),
        **({"typed_into": typed_into} if typed_into else {}),
    }
    return WatchedRun(options, str(run_dir), continues, git_diff(folder), description, os.getpid(), is_shared)


def _check_addresses(options: Options) -> None:
    """Refuse an address that no service and no tool can use, before the script starts.

    Raises:
        UsageError: there is one.
    """
    refuse_bad_addresses(options.to, os.environ)
    if not options.notify:
        return
    from steadytrain.exporters.alerts.settings import NOTIFY_VARIABLE, urls_of_environment
    from steadytrain.exporters.alerts.url_check import refuse_bad_urls
    from steadytrain.exporters.exporter_process import child_environment

    of_variable = set(options.notify) <= set(urls_of_environment())
    where = NOTIFY_VARIABLE if of_variable else "--notify"
    why = refuse_bad_urls(options.notify, child_environment(), where)
    if why:
        tell(f"warning: the addresses of {where} could not be checked ({why})")
