"""Build the watcher of this process with its detectors and its investigator, and end it."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steadytrain.attach.folder_names import give_back
from steadytrain.attach.messages import tell
from steadytrain.capture.hooks.import_hook import forget_imports
from steadytrain.capture.hooks.seeding import begin_torch
from steadytrain.core.interactive import typed_into
from steadytrain.core.torch_private import require

if TYPE_CHECKING:
    from steadytrain.attach.watched_run import WatchedRun
    from steadytrain.capture.step.watcher import Watcher
    from steadytrain.detection.sink import Sink


@dataclass
class Attached:
    """``by_command`` is True if ``steadytrain run`` started it, here or in a parent process."""

    watcher: Watcher
    run: WatchedRun
    by_command: bool
    told_options: bool = False


_attached: Attached | None = None


def attached() -> Attached | None:
    """The watcher of this process with its run, None if nothing is watched."""
    return _attached


def attach(run: WatchedRun, *, by_command: bool) -> Attached:
    """Watch the training in this process from here on.

    If this raises, call :func:`tell_unwatched` to remove what was installed so far.
    """
    global _attached
    require()
    begin_torch()
    from steadytrain.capture.step.watcher import Watcher
    from steadytrain.detection.run_recorder import recording
    from steadytrain.exporters.run_exports import Exports
    from steadytrain.grouping.catalog import broken, detectors
    from steadytrain.tracing.investigator import StepInvestigator

    sink: Sink = Exports(run.options.to, tell=tell, alerts=run.options.alerts())
    line = None
    if typed_into() == "notebook":
        from steadytrain.attach.live_line import LiveLine, Several

        line = LiveLine()
        sink = Several(sink, line)
    watcher = Watcher(
        run.settings(),
        tell=tell,
        record=recording(detectors(), sink),
        investigator=StepInvestigator(),
    )
    if line is not None:
        line.steps_of = lambda: max((stream.step for stream in watcher.streams), default=0)
    _attached = Attached(watcher, run, by_command)
    for plug_in in broken():
        tell(f"warning: the detector plug-in {plug_in.entry_point} is left out: {plug_in.why}")
    atexit.register(_finish_at_exit, watcher)
    _forget_in_children(watcher)
    return _attached


def tell_unwatched(error: Exception) -> None:
    """Remove what was installed before ``error``, and report it in one line: arming is all or nothing."""
    tell(f"warning: could not attach ({type(error).__name__}: {error}); training goes on unwatched")
    if _attached is not None:
        try:
            finish(_attached.watcher, "failed", None)
        except Exception as another:
            tell(f"warning: what was attached stays ({type(another).__name__}: {another})")


def finish(watcher: Watcher, how: str, status: int | None) -> None:
    """End the watch: remove every hook, and close the run folder."""
    global _attached
    if _attached is not None and _attached.watcher is watcher:
        _attached = None
    with watcher.guard.part("removing the import hooks"):
        forget_imports()
    watcher.close(ended=how, exit_status=status)
    if watcher.settings.description.get("pid") == os.getpid():
        give_back(watcher.settings.run_dir)  # else it belongs to the process that started the run
    atexit.unregister(_finish_at_exit)


def _finish_at_exit(watcher: Watcher) -> None:
    """End a watch that is still open at exit: of a launcher's worker, or a script that never closed it."""
    # Python has just printed the error that ended the script. In an interactive session it may be any older error.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    with watcher.guard.part("keeping evidence of the failure"):
        if error is not None:
            watcher.script_failed(error)
    with watcher.guard.part("closing the run"):
        finish(watcher, "finished" if error is None else "failed", None)


def _forget_in_children(watcher: Watcher) -> None:
    """Disable the watch in forked children, which do not train. Registration is permanent and must not keep the watcher
    alive.
    """
    reference = weakref.ref(watcher)

    def forget() -> None:
        kept = reference()
        if kept is not None:
            kept.forget()

    os.register_at_fork(after_in_child=forget)
