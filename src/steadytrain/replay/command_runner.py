"""The launched side: runs the recorded command in this process under an observer or a rehearsal, until its end.

The modules that run as programs (``replay.from_script``, ``survey.launch``, ``onset.measured_replay``, ...) define
what a launched process does. Nothing here imports torch before the script does.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from steadytrain.core.errors import UsageError
from steadytrain.core.levels import LEVEL_DEFAULT, LEVELS, Level
from steadytrain.core.visible_text import visible
from steadytrain.replay.child_processes import die_with_parent
from steadytrain.replay.file_sandbox import protect_files
from steadytrain.replay.files_at_begin import files_at_begin
from steadytrain.replay.loop_command import with_loop
from steadytrain.replay.step_bound import bounded
from steadytrain.storage.redaction import redact_text

if TYPE_CHECKING:
    from steadytrain.capture.hooks.launch import Finish
    from steadytrain.capture.step.observers import StepObserver


class Launchable(Protocol):
    """A bundle or a run: anything that knows the recorded command."""

    @property
    def path(self) -> Path: ...

    @property
    def environment(self) -> Mapping[str, Any]: ...


STAYS_S_MAX = 900.0
"""How long a rank that has its result waits for the others."""

_exit = os._exit
source_path: Path | None = None
"""The bundle or run whose command this process runs: a loop of functions takes its batches from there."""


def goes_on(how: str, status: int | None, error: BaseException | None) -> None:
    """The default for ``ended``: the script ends as usual."""


def run_recorded(
    source: Launchable,
    attach: Callable[[], None],
    *,
    scratch: Path,
    ended: Finish = goes_on,
    text: str | None = None,
) -> int:
    """Runs the recorded command in this process. Calls ``attach`` once torch is imported and ``ended`` at the end.

    The script's file writes go below ``scratch``. The user's files stay unchanged. It finds those that the recorded run
    began with (``files_at_begin``). ``text`` runs in place of the
    script's own source, under its name and in its folder.
    """
    from steadytrain.capture.hooks.import_hook import after_import
    from steadytrain.capture.hooks.launch import execute, module_target, script_target
    from steadytrain.capture.hooks.seeding import Randomness, begin_process, begin_torch

    global source_path
    source_path = source.path
    die_with_parent()
    environment = with_loop(source.environment)
    command = list(environment["argv"])
    if environment.get("module"):
        target = module_target(environment["module"], command[2:])
    else:
        target = script_target(environment["script"], command[1:])
        if text is not None:
            path = os.path.abspath(target.name)
            target = replace(target, code=compile(text, path, "exec", dont_inherit=True))
            linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    protect_files(scratch, began=files_at_begin(source.path))

    def begin() -> None:
        begin_torch()
        attach()

    begin_process(Randomness.recorded(environment))
    after_import("torch", begin)
    hear_of_exit(ended)
    return execute(target, ended)


def run_followed(
    source: Launchable,
    observer: Callable[[], StepObserver],
    *,
    name: str,
    scratch: Path,
    level: Level = LEVELS["light"],
    is_guest: bool = False,
    ended: Finish = goes_on,
    text: str | None = None,
) -> int:
    """Runs the recorded command in this process under an observer, which is created once torch is imported.

    Args:
        scratch: folder for the files that the script writes, and for the watcher's unused run folder.
        is_guest: an error of the observer does not end the script. By default it does, because a replay that
            continued after an error would give a wrong answer.
        ended, text: see :func:`run_recorded`.
    """

    def attach() -> None:
        from steadytrain.capture.hooks.fail_open import Guard

        if not is_guest:
            Guard.reraise = True
        watch_with(name, scratch, level=level, observer=bounded(observer(), tell))

    return run_recorded(source, attach, scratch=scratch, ended=told_first(ended), text=text)


def told_first(ended: Finish) -> Finish:
    """``ended``, after the watcher of this process has heard that the script is over."""

    def over(how: str, status: int | None, error: BaseException | None) -> int | None:
        watchers = sys.modules.get("steadytrain.capture.step.watcher")
        if watchers is not None and watchers.launched is not None:
            watchers.launched.script_over(error)
        return ended(how, status, error)

    return over


def watch_with(
    name: str, scratch: Path, *, level: Level = LEVELS[LEVEL_DEFAULT], detectors: Sequence[str] = (), **parts: Any
) -> None:
    """Watches this process with ``parts`` (an observer or a rehearsal). What it records is gone with ``scratch``.

    ``detectors`` names those that look at the run. They look only beside an observer that is no replay.
    """
    from steadytrain.capture.settings import Settings
    from steadytrain.capture.step import watcher as watchers
    from steadytrain.detection.run_recorder import recording
    from steadytrain.grouping.catalog import declared

    settings = Settings(run_dir=scratch / "unused", run_name=name, policy="observe", level=level)
    record = recording([declared(name)() for name in detectors])
    watchers.launched = watchers.Watcher(settings, tell=tell, record=record, **parts)


def leave() -> NoReturn:
    """Ends this process without the script's exit code, which might save the wrong weights."""
    sys.stdout.flush()
    sys.stderr.flush()
    _exit(0)


def stay() -> NoReturn:
    """Waits for this process to be ended by the one that launched it, for a while, and then leaves: other ranks may
    still need what this one sent them."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(STAYS_S_MAX)
    _exit(0)


def hear_of_exit(ended: Finish) -> None:
    """Calls ``ended`` also if this process leaves by ``os._exit``, which skips all other exit code. A forked copy does
    not call it."""
    own = os.getpid()

    def leaving(status: int) -> NoReturn:
        if os.getpid() == own:
            ended("finished" if status == 0 else "failed", status, None)
        _exit(status)

    os._exit = leaving


def tell(text: str) -> None:
    """Prints a steadytrain message to stderr, among the script's output."""
    print(f"steadytrain: {visible(redact_text(text))}", file=sys.stderr, flush=True)


def as_program(main: Callable[..., int]) -> NoReturn:
    """Calls ``main`` with the command-line arguments and ends the process with its status. Prints a usage error as one
    line, with status 2."""
    try:
        status = main(*sys.argv[1:])
    except UsageError as error:
        tell(str(error))
        status = 2
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    end_process(status)


def end_process(status: int) -> NoReturn:
    """Ends this process after the threads that its end waits for, without the script's exit code: an ``atexit`` handler
    may train further or save. The parent's time limit bounds the wait."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    _exit(status)
