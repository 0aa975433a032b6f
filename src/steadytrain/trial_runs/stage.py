"""A process that brings the recorded script to where trials begin, and runs one or many trials from there.

The script's imports, set-up and own steps run once. Then each trial is a fork of this process. Forking requires a
single thread: OpenMP's pool is released before (``thread_pools``). With other threads that a fork would miss (loader
workers, a GPU, an older OpenMP, other ranks) the process runs one trial itself and ends. Either way no process runs
two trials.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import sysconfig
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from steadytrain.core.errors import UsageError
from steadytrain.experiments.near_start import with_near_starts
from steadytrain.experiments.specs import LOOP_OVER, SCRIPT_FAILED, Change, Outcome, Spec
from steadytrain.replay.child_processes import die_with_parent
from steadytrain.replay.command_runner import hear_of_exit, leave, run_followed, stay
from steadytrain.replay.failing_step import path_hint
from steadytrain.replay.file_sandbox import keep_files, restore_files
from steadytrain.replay.moved_files import Moved
from steadytrain.storage.tape_files import Recording
from steadytrain.trial_runs import thread_pools
from steadytrain.trial_runs.socket_messages import Line

ERROR_CHARACTERS_MAX = 400


def serve(line: Line, asked: Mapping[str, Any]) -> NoReturn:
    """Launches the recorded script as ``asked`` and runs the specs that arrive over ``line``. Does not return."""
    try:
        _redirect(Path(asked["log"]))
        _Stage(line, asked).launch()
    except UsageError as error:
        _send(line, {"refused": str(error)})
    except BaseException as error:
        traceback.print_exc()
        _send(line, {"refused": f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]})
    sys.stderr.flush()
    os._exit(0)


class _Stage:
    def __init__(self, line: Line, asked: Mapping[str, Any]) -> None:
        from steadytrain.replay.from_script import least_own_steps, open_source

        self._line = line
        self._place = Moved.parse(asked["moved"])
        opened = open_source(Path(asked["source"]), self._place)
        self._source = replace(opened, recording=with_near_starts(opened.recording, opened.path))
        self._begin: int | None = asked["begin"] or None  # 0 restores nothing either
        least = least_own_steps(self._source.recording.snapshot_after(self._begin)) if self._begin is not None else 0
        self._own_steps = least
        self._whole_lead = self._begin is not None and asked["lead"] == "all"
        if self._begin is not None and self._whole_lead:
            self._own_steps = self._source.own_steps(self._begin, math.inf).wanted
        self._early = [Change.from_json(change) for change in asked["early"]]
        self._is_rank = bool(asked["variables"])
        os.environ.update(asked["variables"])
        self._scratch = Path(asked["log"]).parent
        self._made: list[Any] = []
        self._run: Any = None

    def launch(self) -> None:
        environment = self._source.environment
        if environment.get("cwd"):
            os.chdir(environment["cwd"])
        self._place.put_on_path()
        run_followed(self._source, self._trials, name="trial", scratch=self._scratch, ended=self._script_over)

    def _trials(self) -> Any:
        from steadytrain.trial_runs.changes import make
        from steadytrain.trial_runs.launched_script import Launched
        from steadytrain.trial_runs.runner import TrialRun

        self._made = [make(change) for change in self._early]
        process = Launched()
        for change in self._made:
            change.early(process)
        self._run = TrialRun(
            self._recording(),
            begin=self._begin,
            own_steps=self._own_steps,
            stage=self._next_job,
            copies=not (_has_gpu() or self._is_rank),
            stream=self._source.stream,
            whole_lead=self._whole_lead,
        )
        return self._run

    def _recording(self) -> Recording:
        """The recording, with the state that the trials begin from if only the bundle holds it.

        Raises:
            UsageError: the state was removed since the trial was planned.
        """
        recording, incident = self._source.recording, self._source.incident
        if self._begin is None or recording.snapshot_after(self._begin) is not None:
            return recording
        if incident is None or self._begin != incident.step - 1:
            raise UsageError(f"the state after step {self._begin}, where the trial starts, is gone")
        from steadytrain.replay.state_before import with_state_before

        return with_state_before(recording, self._source.path, self._begin, self._scratch / f"state-{os.getpid()}")

    def _next_job(self) -> Any:
        """The next job: in a fork if forking is possible, else in this process itself."""
        shared = not self._is_rank and self._is_one_thread()
        if shared:
            keep_files(self._scratch / f"kept-{os.getpid()}")
        self._line.send({"staged": os.getpid(), "shared": shared})
        while True:
            try:
                message = self._line.receive()
            except EOFError:
                leave()
            assert message is not None
            if not shared:
                self._line.send({"running": os.getpid()})
                return self._job(message)
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                die_with_parent()
                hear_of_exit(self._script_over)
                return self._job(message)
            self._line.send({"running": child})
            _, status = os.waitpid(child, 0)
            restore_files()
            self._line.send({"ended": status})

    def _job(self, message: Mapping[str, Any]) -> Any:
        from steadytrain.trial_runs.changes import make
        from steadytrain.trial_runs.job import Job

        spec, out = Spec.from_json(message["spec"]), Path(message["out"])
        kinds = {(change.kind, str(sorted(change.values.items()))) for change in self._early}
        late = [c for c in spec.changes if (c.kind, str(sorted(c.values.items()))) not in kinds]

        if thread_pools.of_the_script():
            self._run.copies = False  # a queue of the script is emptied by a thread that a fork lacks

        def report(outcome: Outcome) -> NoReturn:
            from steadytrain.storage.bundle import write_json

            write_json(out, (self._with_steps(outcome, changes) if self._is_rank else outcome).to_json())
            if self._is_rank:
                stay()
            leave()

        changes = [*self._made, *(make(change) for change in late)]
        return Job(spec, changes, report, began=time.perf_counter())

    def _with_steps(self, outcome: Outcome, changes: Sequence[Any]) -> Outcome:
        """An outcome with its steps, also if the change touched nothing here: it may on another rank."""
        if outcome.ran or self._run is None:
            return outcome
        whole: Outcome = self._run.shown.outcome(outcome.spec, changes, None)
        return replace(whole, ran=False, why_not=outcome.why_not, seconds=outcome.seconds)

    def _script_over(self, how: str, status: int | None, error: BaseException | None) -> None:
        """Reports that the script ended before the trial did."""
        run = self._run
        if run is not None and run.probing:
            leave()
        why = LOOP_OVER
        if error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(type(error), error, error.__traceback__)
            text = str(error).strip().splitlines() or [""]
            why = f"{SCRIPT_FAILED}: {type(error).__name__}: {text[0]}"[:ERROR_CHARACTERS_MAX] + _raised_at(error)
            if isinstance(error, ImportError):
                why += path_hint(self._source.environment)
        if run is None:
            _send(self._line, {"refused": f"{why} before it imported torch"})
        elif run.job is None:
            where = f"step {self._own_steps}" if self._begin is not None else "its first step"
            _send(self._line, {"refused": f"{why} before {where}, where trials begin"})
        elif error is not None and not isinstance(error, SystemExit):
            run._cannot(why)
        else:
            run.finish(why)
        leave()

    @staticmethod
    def _is_one_thread() -> bool:
        import torch

        if multiprocessing.active_children() or _has_gpu() or thread_pools.of_the_script():
            return False
        return torch.get_num_threads() == 1 or thread_pools.release()


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def _redirect(log: Path) -> None:
    """Sends the script's output to a file. Its last lines are shown on failure."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, descriptor), (2, descriptor)):
        os.dup2(source, target)


def _send(line: Line, message: dict[str, Any]) -> None:
    with suppress(OSError):
        line.send(message)


def _raised_at(error: BaseException) -> str:
    """Where the script's own code raised: `` (train.py:31)``, "" if no frame is its own."""
    library = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not one.filename.startswith((*library, "<"))]
    return f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""
