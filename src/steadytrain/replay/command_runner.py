"""The launched side: the recorded command in this process, under a follower or a rehearsal of ours, and its end.

What a launched process is for stands in the module that is its program (``replay``, ``locate``, ``survey``,
``onset.launched``, ``repro.stepping``, ...); how one is launched stands in ``relaunch``. Nothing here imports torch
before the script does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from steadytrain.core.errors import UsageError
from steadytrain.core.levels import LEVEL_DEFAULT, LEVELS, Level
from steadytrain.replay.child_processes import die_with_parent
from steadytrain.replay.file_sandbox import protect_files

if TYPE_CHECKING:
    from steadytrain.capture.hooks.launch import Finish
    from steadytrain.capture.step.observers import StepObserver


class Launchable(Protocol):
    """What knows the command that was run: a bundle, or a run."""

    @property
    def environment(self) -> Mapping[str, Any]: ...


_exit = os._exit


def goes_on(how: str, status: int | None, error: BaseException | None) -> None:
    """The script ends as it does."""


def run_recorded(
    source: Launchable,
    attach: Callable[[], None],
    *,
    scratch: Path,
    ended: Finish = goes_on,
) -> int:
    """Run the recorded command in this process, call ``attach`` once it has imported torch and ``ended`` at its end.

    What the script writes goes below ``scratch``, and the user's files stay as they are.
    """
    from steadytrain.capture.hooks.import_hook import after_import
    from steadytrain.capture.hooks.launch import execute, module_target, script_target

    die_with_parent()
    environment = source.environment
    command = list(environment["argv"])
    if environment.get("module"):
        target = module_target(environment["module"], command[2:])
    else:
        target = script_target(environment["script"], command[1:])
    protect_files(scratch)
    after_import("torch", attach)
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
) -> int:
    """Run the recorded command in this process under a follower, which is made once torch is imported.

    Args:
        scratch: where the script's files go, and a watcher's run folder would be.
        is_guest: an error of the follower's does not end the script. Else it does: a replay that went on after one
            would give a wrong answer.
        ended: see :func:`run_recorded`.
    """

    def attach() -> None:
        from steadytrain.capture.hooks.fail_open import Guard

        if not is_guest:
            Guard.reraise = True
        watch_with(name, scratch, level=level, observer=observer())

    return run_recorded(source, attach, scratch=scratch, ended=ended)


def watch_with(name: str, scratch: Path, *, level: Level = LEVELS[LEVEL_DEFAULT], **parts: Any) -> None:
    """Watch this process with ``parts`` of ours, a follower or a rehearsal, and record nothing."""
    from steadytrain.capture.settings import Settings
    from steadytrain.capture.step import watcher as watchers
    from steadytrain.detection.run_recorder import recording

    settings = Settings(run_dir=scratch / "unused", run_name=name, policy="observe", level=level)
    watchers.launched = watchers.Watcher(settings, tell=tell, record=recording(), **parts)


def leave() -> NoReturn:
    """End this process, past the script's own exit code: it may save, and these are not the run's weights to save."""
    sys.stdout.flush()
    sys.stderr.flush()
    _exit(0)


def hear_of_exit(ended: Finish) -> None:
    """Call ``ended`` as well where this process, and no copy of it, leaves by ``os._exit``: that passes all else by."""
    own = os.getpid()

    def leaving(status: int) -> NoReturn:
        if os.getpid() == own:
            ended("finished" if status == 0 else "failed", status, None)
        _exit(status)

    os._exit = leaving


def tell(text: str) -> None:
    """A line of ours among what the script prints."""
    print(f"steadytrain: {text}", file=sys.stderr, flush=True)


def as_program(main: Callable[..., int]) -> NoReturn:
    """Call ``main`` with the arguments of the command line; an error that is meant for the user is one line."""
    try:
        sys.exit(main(*sys.argv[1:]))
    except UsageError as error:
        tell(str(error))
        sys.exit(2)
