"""The exception that ends a training after a refused update: it ends a script, and prints one line in a notebook."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadytrain.core.interactive import shell
from steadytrain.core.own_errors import unless_it_fails

STOPPED_STATUS = 70


class RunStopped(BaseException):
    """An update was refused because its loss or gradients are not finite; weights and optimizer state stay.

    This is not an ``Exception``, so ``except Exception`` in a training loop does not catch it; ``finally`` still runs.
    In a script it is also a ``SystemExit`` and ends the process with status 70. A notebook or an IPython prompt answers
    each ``SystemExit`` with advice on how to exit; there it only ends the cell and prints its message.

    Args:
        message: what was refused, in which step, and why, in one line.

    Examples:
        >>> try:
        ...     with steadytrain.watch(model, optimizer, name="caught"):
        ...         model(batch / 0).mean().backward()
        ...         optimizer.step()
        ... except steadytrain.RunStopped as stopped:
        ...     print(stopped.message)
        steadytrain refused the update of step 1: ...
    """

    message: str
    status = STOPPED_STATUS
    next_call = ""
    """What to call next in a notebook; "" if it is not known."""

    def __new__(cls, message: str) -> RunStopped:
        kind = (_CellStopped if shell() is not None else _ScriptStopped) if cls is RunStopped else cls
        return super().__new__(kind, message)

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def with_status(self, status: int) -> RunStopped:
        """The same, but a script ends with ``status``."""
        self.status = status
        return self

    def of_run(self, run_dir: Path, description: Mapping[str, Any]) -> RunStopped:
        """The same, with the call that comes next: a diagnosis, or only a look if the steps cannot be run again."""
        name = str(run_dir)
        with unless_it_fails(OSError):  # the current folder is gone
            name = os.path.relpath(run_dir) if run_dir.is_relative_to(Path.cwd()) else name
        launchable = description.get("script") or description.get("module")
        self.next_call = f"steadytrain.{'diagnose' if launchable else 'load_run'}({name!r})"
        return self

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[RunStopped], tuple[str]]:
        return RunStopped, (self.message,)


def quiet_in_threads() -> None:
    """A thread of the script that ends by ``RunStopped`` shows no traceback, as none does that ends by ``SystemExit``
    itself: the message was shown already."""
    theirs = threading.excepthook

    def ours(args: threading.ExceptHookArgs, /) -> None:
        if not isinstance(args.exc_value, RunStopped):
            theirs(args)

    threading.excepthook = ours


class _ScriptStopped(RunStopped, SystemExit):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = STOPPED_STATUS

    def with_status(self, status: int) -> RunStopped:
        self.code = status
        return super().with_status(status)


class _CellStopped(RunStopped):
    def _render_traceback_(self) -> list[str]:
        """The line that IPython prints in place of a traceback."""
        return [f"RunStopped: {self.message}" + (f"; next: {self.next_call}" if self.next_call else "")]


for _kind in (_ScriptStopped, _CellStopped):
    _kind.__name__ = _kind.__qualname__ = RunStopped.__name__
