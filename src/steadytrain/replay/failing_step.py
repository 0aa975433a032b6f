"""Reruns the failing step of an incident in a new process.

The recorded command is launched again under a watcher. It computes its own steps up to the one before (or only the
first, if that takes too long). Then the recorded weights, random state and batch are put in place, and the script's
loop runs once under the tracer. The process ends right there, without the script's exit code, so it overwrites nothing
that the real run saved.

Run as ``python -m steadytrain.replay.failing_step BUNDLE RESULT.json``; :func:`locate_again` does that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.capture.hooks.seeding import hash_variables
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import NOT_MADE_HERE, Finding
from steadytrain.replay.child_processes import process_group
from steadytrain.replay.command_runner import as_program, leave, run_recorded, watch_with
from steadytrain.replay.loop_command import check_typed, with_loop
from steadytrain.replay.ports import free_port
from steadytrain.replay.written_files import note_written
from steadytrain.storage.bundle import Bundle, open_bundle, write_json
from steadytrain.storage.rank_group import alone, world_of
from steadytrain.storage.step_look import StepLook

if TYPE_CHECKING:
    from steadytrain.capture.incident.context import IncidentContext

Tell = Callable[[str], None]

LOG_LINES_SHOWN = 5
TELL_S = 10.0
"""Seconds between two lines of progress."""

RESUMED_HINT = ", with fewer steps than recorded (if it resumes from a checkpoint, restore the one it started from)"
NOT_FOUND = ("ModuleNotFoundError", "ImportError")
FORBIDDEN = ("Permission denied", "Operation not permitted")
FORBIDDEN_HINT = ", because a write was denied: a relaunched script cannot change your files"
MARKS = "^~ "
"""The marker lines under a traceback line. They are dropped from the message."""


def locate_again(bundle: Bundle, *, wait_s: float) -> tuple[Finding, StepLook | None]:
    """Launches the recorded command again and searches the failing step for at most ``wait_s`` seconds.

    Returns the finding and the second looks at the step; None for the looks if the script did not reach its step.

    Raises:
        UsageError: the bundle is incomplete, or the script is gone.
    """
    with tempfile.TemporaryDirectory(prefix="steadytrain-locate-") as scratch:
        result = Path(scratch) / "result.json"
        why = launch_again(bundle, "steadytrain.replay.failing_step", [str(result)], result, wait_s=wait_s)
        if why is not None:
            return Finding(None, f"not searched: {why}"), None
        document = json.loads(result.read_text(encoding="utf-8"))
    look = StepLook.from_json(document["look"]) if document["look"] else None
    return Finding.from_json(document["finding"]), look


def launch_again(bundle: Bundle, module: str, arguments: Sequence[str], result: Path, *, wait_s: float) -> str | None:
    """Runs ``python -m module BUNDLE arguments...`` in the recorded folder until it has written ``result``.

    Returns None on success, else the reason.

    Raises:
        UsageError: the bundle is incomplete, or the script is gone.
    """
    folder = folder_to_run_in(bundle.path, bundle.environment)
    if not (bundle.path / "model.safetensors").is_file():
        note = bundle.incident.state_note
        raise UsageError(f"{bundle.path}: weights were {note}; the step cannot run again without them")
    check_batches(bundle.path, bundle.incident.batch_note)
    command = ["-m", module, str(bundle.path.absolute()), *arguments]
    return launch(command, result, bundle.environment, folder=folder, wait_s=wait_s)


def check_batches(path: Path, batch_note: str) -> None:
    """Checks that a bundle has its batches.

    Raises:
        UsageError: they were left out.
    """
    if not (path / "batches.json").is_file():
        raise UsageError(f"{path}: its batches were {batch_note}; the step cannot run again without them")


def launch(
    arguments: Sequence[str],
    result: Path,
    environment: Mapping[str, Any],
    *,
    folder: str | None,
    wait_s: float,
    until: str = "step",
    limit: str = "--wait-s",
    tell: Tell | None = None,
) -> str | None:
    """Runs Python with ``arguments`` in ``folder`` until it has written ``result``. Returns None on success, else the
    reason.

    The message names ``until`` as what the script did not reach. ``environment`` is that of the recorded run, ``limit``
    what sets ``wait_s``. ``tell`` gets a line of progress every ten seconds. Of several ranks it is one, alone.
    """
    variables = hash_variables(environment)
    if world_of(environment) > 1:
        variables = {**variables, **alone(environment, port=free_port())}
    log = result.parent / "output.txt"
    ended = run_logged(arguments, log, folder=folder, wait_s=wait_s, tell=tell, variables=variables)
    if ended is None:
        return f"the launched script took more than {wait_s:.0f} s ({limit})"
    return None if result.is_file() else ended.before(until, environment)


@dataclass(frozen=True)
class Ended:
    """How a launched process ended, and the last lines of its output."""

    status: int
    said: tuple[str, ...]
    was_forbidden: bool
    """The output contains a permission error."""

    def before(self, until: str, environment: Mapping[str, Any]) -> str:
        """A message for a script that was recorded in ``environment`` and ended before it reached ``until``."""
        said = f"; it said: {' | '.join(self.said)}" if self.said else ""
        hint = RESUMED_HINT if self.status == 0 else ""
        if self.was_forbidden:
            hint = FORBIDDEN_HINT
        lost = path_hint(environment) if any(text in line for line in self.said for text in NOT_FOUND) else ""
        return f"the launched script ended with {self.status} before its {until}{hint}{said}{lost}"


def path_hint(environment: Mapping[str, Any]) -> str:
    """A part of a sentence if the run had entries in ``PYTHONPATH`` that this process does not search, "" if not."""
    recorded = str((environment.get("environment") or {}).get("PYTHONPATH") or "")
    searched = {*os.environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path}
    lost = [entry for entry in recorded.split(os.pathsep) if entry and entry not in searched]
    return f"; the run had PYTHONPATH={recorded}: set it again" if lost else ""


def run_logged(
    arguments: Sequence[str],
    log: Path,
    *,
    folder: str | None,
    wait_s: float,
    tell: Tell | None = None,
    variables: Mapping[str, str] | None = None,
) -> Ended | None:
    """Runs Python with ``arguments`` in ``folder`` with all output in ``log``, and these environment variables set.
    Returns None on timeout.
    """
    environment = {**os.environ, **variables} if variables else None
    with (
        log.open("wb") as output,
        process_group(
            [sys.executable, *arguments], folder=folder, environment=environment, stdout=output, stderr=output
        ) as child,
    ):
        status = _waited(child, wait_s, tell)
    note_written(log.parent)
    return None if status is None else ended_with(status, log)


def ended_with(status: int, log: Path) -> Ended:
    """The end of a process whose output went to ``log``."""
    said = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    was_forbidden = any(text in line for line in said for text in FORBIDDEN)
    return Ended(status, tuple(line for line in said if line.strip(MARKS))[-LOG_LINES_SHOWN:], was_forbidden)


def _waited(child: subprocess.Popen[str], wait_s: float, tell: Tell | None) -> int | None:
    """The exit status of ``child``; None if it runs for more than ``wait_s`` seconds."""
    began = time.monotonic()
    while (left := began + wait_s - time.monotonic()) > 0:
        try:
            return child.wait(min(left, TELL_S))
        except subprocess.TimeoutExpired:
            if tell is not None and left > TELL_S:
                tell(f"the launched script has run for {time.monotonic() - began:.0f} s (at most {wait_s:.0f} s)")
    return None


NOT_RECORDED = "the command was not recorded, so it cannot be launched again"
MOVED_HINT = "; use --tree OLD=NEW if it has moved"


def check_launch(
    environment: Mapping[str, Any],
    *,
    unknown: str = NOT_RECORDED,
    script_hint: str = MOVED_HINT,
    folder_hint: str = MOVED_HINT,
) -> None:
    """Checks that the recorded command can be launched again. The texts go into the error messages.

    Raises:
        UsageError: the command is unknown or was typed in, or its script or folder is gone.
    """
    environment = with_loop(environment)
    check_typed(environment)
    script, module, folder = environment.get("script"), environment.get("module"), environment.get("cwd")
    if not script and not module:
        raise UsageError(unknown)
    if script and not Path(script).is_file():
        raise UsageError(f"{script}: the script is gone{script_hint}")
    if folder and not Path(folder).is_dir():
        raise UsageError(f"{folder}: the folder that the script ran in is gone{folder_hint}")


def folder_to_run_in(path: Path, environment: Mapping[str, Any]) -> str | None:
    """The folder in which the recorded command ran; None if unknown.

    Raises:
        UsageError: the command is unknown, or its script or folder is gone.
    """
    unknown = f"{path}: it does not contain the command, so it cannot be launched again"
    shown = "; restore it, or use `steadytrain replay --tree OLD=NEW` if it has moved"
    check_launch(environment, unknown=unknown, script_hint=shown, folder_hint="")
    return with_loop(environment).get("cwd")


def main(bundle_path: str, result_path: str) -> int:
    """The launched side: runs the recorded command with the failing step rehearsed."""
    bundle = open_bundle(Path(bundle_path))
    return run_recorded(bundle, lambda: _attach(bundle, Path(result_path)), scratch=Path(result_path).parent)


def _attach(bundle: Bundle, result_path: Path) -> None:
    from steadytrain.replay.bundle_state import NEW_PROCESS, BundleRehearsal
    from steadytrain.tracing.compiled_graphs import intercept
    from steadytrain.tracing.second_looks import RerunWithSecondLooks

    laps: list[RerunWithSecondLooks] = []

    def rerun(incident_context: IncidentContext) -> RerunWithSecondLooks:
        laps.append(RerunWithSecondLooks(incident_context, step=bundle.incident.step, method=NEW_PROCESS))
        return laps[-1]

    def done(finding: Finding) -> None:
        look = laps[-1].look if laps else None
        write_json(result_path, {"finding": finding.to_json(), "look": look.to_json() if look else None})
        leave()

    intercept()
    watch_with("locate", result_path.parent, rehearsal=BundleRehearsal(bundle, done, rerun=rerun))


def keep_better(bundle: Bundle, finding: Finding) -> bool:
    """Stores ``finding`` in the bundle if it names an operation and the bundle has none, or if it is the first to know
    that the batch was bad as it was loaded. Returns whether it did."""
    from steadytrain.storage.staged_bundle import update_incident

    recorded = bundle.incident.finding
    better = recorded.is_half_traced() and NOT_MADE_HERE in finding.came_in
    if recorded.located is not None or not (better or finding.located is not None):
        return False
    update_incident(bundle.path, replace(bundle.incident, finding=finding))
    return True


def is_named_input(finding: Finding) -> bool:
    """Whether the finding blames no operation, but names an input that was already non-finite."""
    return "already h" in finding.why and not finding.why.startswith("not searched")


def verdict(recorded: Finding, again: Finding) -> str:
    """One phrase that compares the new search with the one at the incident."""
    one, other = recorded.located, again.located
    if one is None and other is None:
        return "neither search named an operation"
    if one is None:
        return "not traced at the incident, named in the new process"
    if other is None:
        return f"named at the incident; in the new process: {again.why}"
    same = (one.operation, one.module, one.line, one.phase) == (other.operation, other.module, other.line, other.phase)
    return "the same in the new process as at the incident" if same else "another one than at the incident"


def best(recorded: Finding, again: Finding) -> Finding:
    """The search that names an operation; the newer one if both do."""
    return again if again.located is not None or recorded.located is None else recorded


if __name__ == "__main__":
    as_program(main)
