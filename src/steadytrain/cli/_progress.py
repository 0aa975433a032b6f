"""Progress of long commands: on a terminal one line with the elapsed time, from the first second on; else nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from steadytrain.cli._terminal import plain
from steadytrain.core.visible_text import visible
from steadytrain.storage.redaction import redact_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


LINE_MIN, BESIDE = 10, 44
"""Characters for the last line of progress at least, and those beside it: spinner, time, counts."""


class Teller:
    """Takes lines of progress, and how many trials are done and to come. The lines scroll by above the status line."""

    def __init__(self, shown: Progress, task: TaskID) -> None:
        self._shown, self._task = shown, task
        self._before, self._done, self._to_come = 0, 0, 0

    def __call__(self, line: str) -> None:
        line = visible(redact_text(line))
        self._shown.console.print(f"steadytrain: {line}", markup=False, highlight=False)
        room = max(LINE_MIN, self._shown.console.width - BESIDE)
        self._shown.update(self._task, description=line if len(line) <= room else f"{line[: room - 3]}...")

    def counted(self, done: int, of: int) -> None:
        """``done`` of the ``of`` trials of the call in progress are over; a call begins with 0."""
        if done == 0:
            self._before += self._done
        self._done, self._to_come = done, of - done
        self._shown.update(self._task, trials=self.trials)

    @property
    def trials(self) -> str:
        """``trials: 3 done, 2 to come``."""
        return f"trials: {self._before + self._done} done, {self._to_come} to come"


@contextmanager
def progress(console: Console | None = None) -> Iterator[Teller | None]:
    """A teller while the body runs. Without a terminal, None. ``console`` replaces standard error in tests."""
    if console is None and not sys.stderr.isatty():
        yield None
        return
    from rich import console as consoles
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[trials]}", markup=False),
        TextColumn("{task.description}", markup=False),
    )
    shown = Progress(
        *columns, console=console or consoles.Console(file=plain(sys.stderr)), transient=True, redirect_stdout=False
    )
    with shown:
        yield Teller(shown, shown.add_task("starting", total=None, trials=""))
