"""Run a script under ``steadytrain run``, and attach to the processes that it starts. The script decides when torch is
imported.
"""

from __future__ import annotations

import json
import multiprocessing.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steadytrain.attach.folder_names import give_back, made_here
from steadytrain.attach.messages import tell
from steadytrain.attach.options import Options
from steadytrain.attach.process_watch import attach, attached, finish, tell_unwatched
from steadytrain.attach.watched_run import WatchedRun, begin_run
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.hooks.import_hook import after_import
from steadytrain.capture.hooks.launch import ATTACH_VARIABLE, Target, arm_children, execute
from steadytrain.capture.hooks.seeding import (
    AS_IT_IS,
    Randomness,
    begin_process,
    begin_torch,
    end_lines,
    operations_that_warned,
)
from steadytrain.core.errors import UsageError
from steadytrain.core.model import SEVERITIES, Severity
from steadytrain.exporters import NONE, early_alert
from steadytrain.replay.file_sandbox import SCRATCH_VARIABLE, protect_files
from steadytrain.storage.ranks_of_run import launched_rank, speaks_here
from steadytrain.storage.redaction import redact_arguments
from steadytrain.storage.run_folder import RUN_FILE, Run, open_run

if TYPE_CHECKING:
    from steadytrain.capture.step.watcher import Watcher

_START_FOLDER = Path(__file__).parent / "start"
"""Its ``sitecustomize`` attaches to the processes that a watched script starts."""


UNHEALTHY_STATUS = 71
"""Its own: a script that raises ends with 1."""
STOPPED_STATUS = 70
NOT_TRAINED = "no step of a training was seen"


@dataclass(frozen=True)
class Wanted:
    """What a script that ended with 0 must have fulfilled: no symptom of ``fail_on`` or above, and a step of a training
    if that is required."""

    fail_on: Severity | None = None
    require_training: bool = False

    def unmet(self, run_dir: Path, watcher: Watcher | None) -> str:
        """What the script under watch did not fulfil, which is also reported; "" if it fulfilled everything.

        ``watcher``: that of this process, which knows its steps and symptoms also where no folder could be written.
        """
        option, why = "", ""
        if self.require_training and not _has_trained(run_dir, watcher):
            option, why = "--require-training", NOT_TRAINED
        elif self.fail_on is not None and _reaches(run_dir, watcher, self.fail_on):
            option, why = f"--fail-on {self.fail_on}", "such a symptom was seen"
        if why:
            tell(f"{option}: {why}, so the exit status is {UNHEALTHY_STATUS}")
        return why


NOTHING_WANTED = Wanted()

IN_ANOTHER_RUN = "recorded by the processes that the script started, in the run of rank 0 of their group"
"""Where the folder of this run went: ranks that the script started joined that of another node."""


def run_target(
    target: Target,
    options: Options,
    *,
    guest: Callable[[Watcher], None] | None = None,
    wanted: Wanted = NOTHING_WANTED,
    randomness: Randomness = AS_IT_IS,
) -> int:
    """Run ``target`` under watch. Returns the exit status: the script's, or 70 if an update was refused.

    Args:
        guest: called with the watcher once it exists; may add an observer of the steps.
        randomness: seeds and determinism that hold before the script starts.
        wanted: what the script must have fulfilled; if it did not, the exit status is 71 instead of 0.
    """
    try:
        run = _begin(target, options, guest, randomness)
    except UsageError:
        raise
    except Exception as error:
        tell_unwatched(error)
        return execute(target, lambda *_: None)

    def finish_run(how: str, status: int | None, error: BaseException | None) -> int | None:
        if run.pid != os.getpid():
            return None  # a child that the script forked ends by itself: nothing of the run is its own
        with end.part("alerting"):
            early_alert.dismiss()
        override, own = None, attached()
        run_dir = own.watcher.settings.run_dir if own is not None else Path(run.run_dir)
        given_up = made_here(run_dir) and not os.path.isdir(run_dir)
        with end.part("ending the run"):
            override = _finish_run(run, run_dir, how, status, error, given_up=given_up)
        watcher, unmet = own.watcher if own is not None else None, ""
        with end.part("checking --fail-on and --require-training"):
            if override is None and status == 0 and not given_up:
                unmet = wanted.unmet(run_dir, watcher)
        with end.part("alerting"):
            if unmet == NOT_TRAINED:
                _alert_of_early_end(run, "untrained", f"{NOT_TRAINED} (--require-training)")
        return UNHEALTHY_STATUS if unmet else override

    end = Guard(tell)
    return execute(target, finish_run)


def run_bare(target: Target) -> int:
    """Run ``target`` as if steadytrain were not there. Returns the script's exit status.

    A command of ours that launched this process still keeps the script from saving over its files.
    """
    if os.environ.get(SCRATCH_VARIABLE):
        protect_files(Path(os.environ[SCRATCH_VARIABLE]))
    return execute(target, lambda *_: None)


def _begin(
    target: Target, options: Options, guest: Callable[[Watcher], None] | None, randomness: Randomness
) -> WatchedRun:
    """Prepare this process, and those that the script starts, for the script's import of torch."""
    run = begin_run(
        target.file, target.stem, target.command, options, is_module=target.is_module, randomness=randomness
    )
    arm_children(run.to_json(), _START_FOLDER)
    if os.environ.get(SCRATCH_VARIABLE):
        protect_files(Path(os.environ[SCRATCH_VARIABLE]), also=(Path(run.run_dir).absolute().parent,))
    if launched_rank() == 0:
        tell(f"watching {' '.join(redact_arguments(target.command))} (policy {options.policy}) -> {run.run_dir}")
        with Guard(tell).part("alerting"):
            early_alert.begin(Path(run.run_dir), run.description, run.options.alerts(), tell)
    begin_process(randomness)
    after_import("torch", Guard(tell).wrap(lambda: _arm(run, guest), what="attaching"))
    return run


def arm_child() -> None:
    """Attach to a process that a watched script started. The start hook calls this once torch is imported."""
    run = WatchedRun.from_json(json.loads(os.environ[ATTACH_VARIABLE]))
    if run.pid == os.getpid():
        return  # the watched script itself: run_target attached to it
    begin_process(Randomness.recorded(run.description))
    _arm(run)
    own = attached()
    if own is not None:
        # A multiprocessing child exits through os._exit, which skips atexit but runs its own finalizers.
        multiprocessing.util.Finalize(None, lambda: own.watcher.close(ended="finished"), exitpriority=10)


def _arm(run: WatchedRun, guest: Callable[[Watcher], None] | None = None) -> None:
    try:
        begin_torch()
    except Exception as error:
        tell(f"warning: seeds or deterministic operations could not be set ({type(error).__name__}: {error})")
    try:
        watcher = attach(run, by_command=True).watcher
        if guest is not None:
            guest(watcher)
    except Exception as error:
        tell_unwatched(error)


def _finish_run(
    run: WatchedRun, run_dir: Path, how: str, status: int | None, error: BaseException | None, *, given_up: bool
) -> int | None:
    """End the watch after the script: settle open matters, print the summary, and choose the exit status.

    ``given_up``: a child of the script gave up the run's folder, because it belongs to another run.
    """
    from steadytrain.detection.summary import summary

    own, own_guard = attached(), Guard(tell)
    watcher = own.watcher if own is not None else None
    if watcher is not None:
        own_guard = watcher.guard
        with own_guard.part("keeping evidence of the failure"):
            if error is not None:
                watcher.script_failed(error)
        with own_guard.part("naming nondeterministic operations"):
            if operations_that_warned():
                watcher.set_fact("nondeterministic_operations", operations_that_warned())
        with own_guard.part("one more lap"):
            if how != "finished":
                watcher.abandon_rerun(f"the script {how} before it reached the optimizer again")
        with own_guard.part("closing the run"):
            finish(watcher, how, status)
    is_first = launched_rank() == 0 and not (watcher is not None and watcher.settings.joined)
    stopped = _stopped_elsewhere(run_dir) or (watcher is not None and watcher.stopped is not None)
    with own_guard.part("the summary"):
        lines = summary(watcher, run_dir) if is_first or speaks_here(run_dir, launched_rank()) else []
        if given_up and not (watcher is not None and watcher.streams):
            failure = watcher.failure if watcher is not None else None
            lines = ["; ".join(filter(None, [failure, IN_ANOTHER_RUN]))]
        if watcher is not None and watcher.streams:
            lines = [*lines[:-1], *end_lines(), *lines[-1:]] if lines else []
        for line in lines:
            tell(line)
    with own_guard.part("alerting"):
        if how != "finished" and not stopped and not _was_recorded(watcher, run_dir):
            _alert_of_early_end(run, how, f"{type(error).__name__}: {error}".rstrip(": ") if error is not None else "")
    with own_guard.part("the summary"):
        give_back(Path(run.run_dir))
    if watcher is not None and watcher.stopped is not None:
        return watcher.stopped.status
    return STOPPED_STATUS if stopped else None


def _has_trained(run_dir: Path, watcher: Watcher | None) -> bool:
    """Whether this process, or one that the script started, made a step. Its folder is made at the first one."""
    streams = watcher.streams if watcher is not None else ()
    return any(stream.own_steps + stream.updates_before for stream in streams) or (run_dir / RUN_FILE).exists()


def _was_recorded(watcher: Watcher | None, run_dir: Path) -> bool:
    """Whether this process, or one that the script started, recorded a step: its recorder alerts of the end."""
    if watcher is not None and watcher.streams:
        return True
    return (run_dir / RUN_FILE).exists() and (watcher is None or not watcher.has_folder)


def _alert_of_early_end(run: WatchedRun, how: str, why: str) -> None:
    """Alert of a script that ended before its first step, when nothing had been opened yet."""
    alerts = run.options.alerts()
    if not alerts.wanted:
        return
    from steadytrain.exporters.run_exports import Exports

    sink = Exports((NONE,), tell=tell, alerts=alerts)
    sink.open(Path(run.run_dir), run.description)
    sink.close(how, why)


def _reaches(run_dir: Path, watcher: Watcher | None, severity: Severity) -> bool:
    """Whether any process of the run has a symptom of at least this severity."""
    grave = SEVERITIES[SEVERITIES.index(severity) :]
    if watcher is not None and any(symptom.severity in grave for symptom in watcher.symptoms):
        return True
    try:
        run = open_run(run_dir)
        found = [*run.symptoms, *(symptom for rank in run.ranks for symptom in open_run(rank).symptoms)]
        return any(symptom.severity in grave for symptom in found)
    except Exception:
        return False


def _stopped_elsewhere(run_dir: Path) -> bool:
    """Whether a process that the script started refused an update."""
    try:
        run = open_run(run_dir)
        return any(map(_was_stopped, (run, *map(open_run, run.ranks))))
    except Exception:  # the folder may be gone, or another's
        return False


def _was_stopped(run: Run) -> bool:
    """Whether an update was refused and ended it, or whoever started the process ended it then (Ray kills workers)."""
    refused = run.ended is None and any(action.what.startswith("refused-") for action in run.actions)
    return refused or run.ended == "stopped"
