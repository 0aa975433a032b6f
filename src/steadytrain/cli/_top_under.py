"""``run --top``: the live picture in the last lines of the terminal, under the script's own output.

A second process draws. The training process only starts it, and asks it to end: it measures nothing more and waits for
nothing. The second process is no child of the training process, whose script may wait for its own children. The script
keeps its output: the terminal scrolls it above the picture (a scroll region, as package managers use for progress).
Whatever happens to the training process, the second one sees that it is gone and gives the terminal back.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.text import Text

from steadytrain.cli._output import say
from steadytrain.core.errors import UsageError
from steadytrain.live.drawing import Frame, lines_of
from steadytrain.live.follower import RunFollower
from steadytrain.live.picture import Picture
from steadytrain.live.view import View
from steadytrain.storage.left_overs import PROCESS
from steadytrain.storage.processes import MARK, parent_of, process_mark, process_start, state_of
from steadytrain.storage.run_folder import RUN_FILE, read_description

LINES_MIN, LINES_MAX = 8, 16
"""The picture takes half of the terminal, within these bounds."""

TERMINAL = "/dev/tty"
EVERY_S = 1.0
END_WAIT_S = 3.0
ANCESTORS_MAX = 16
_IN_BACKGROUND = '"$@" & echo $!'


@contextmanager
def picture_under(runs_dir: Path) -> Iterator[None]:
    """Show the run of this process in ``runs_dir`` while the script runs. Without a terminal say so, and go on."""
    drawing = _start(runs_dir)
    try:
        yield
    finally:
        if drawing is not None:
            with suppress(OSError, ValueError):
                _end(*drawing)


def _start(runs_dir: Path) -> tuple[int, IO[bytes]] | None:
    """The number of the process that draws, and a pipe that is closed when it ends."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        say("steadytrain: --top needs a terminal that can move its cursor; the run goes on without it", err=True)
        return None
    words = [sys.executable, "-m", "steadytrain", "top", "--runs-dir", str(runs_dir.absolute())]
    try:
        shell = subprocess.Popen(
            ["sh", "-c", _IN_BACKGROUND, "sh", *words, "--under", f"{process_mark()}@{time.time()}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        assert shell.stdout is not None
        number = int(shell.stdout.readline())
        shell.wait()
    except (OSError, ValueError) as error:
        say(f"steadytrain: --top could not be started ({error}); the run goes on without it", err=True)
        return None
    return number, shell.stdout


def _end(number: int, alive: IO[bytes]) -> None:
    os.kill(number, signal.SIGTERM)
    select.select([alive], [], [], END_WAIT_S)  # its end closes the pipe
    alive.close()


def draw_under(writer: str, runs_dir: Path) -> None:
    """The second process: draws the run of a process until that is gone, or this one is asked to end.

    Args:
        writer: ``MARK@TIME``: the mark of the process, and when it began, in seconds since 1970.
    """
    mark, _, began = writer.partition("@")
    if not re.fullmatch(MARK, mark) or not re.fullmatch(r"\d+(\.\d+)?", began):
        raise UsageError(f"--under {writer}: not a process; `run --top` starts this")
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: asked.append(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the script's
    process = int(mark.rpartition("-")[2])
    start, since = process_start(process), float(began)
    with open(TERMINAL, "w", encoding="utf-8") as terminal:
        under = _Under(terminal)
        follower: RunFollower | None = None
        try:
            while not asked and state_of(mark, start) == "running":
                with suppress(UsageError):  # a folder in the making, or one that is being moved
                    follower = follower or _follower(runs_dir, mark, process, since)
                    if follower is not None:
                        under.draw(follower.poll(time.time()))
                time.sleep(EVERY_S)
        finally:
            under.close()


def _follower(runs_dir: Path, mark: str, process: int, since: float) -> RunFollower | None:
    """The run that the process ``mark``, or one that it has launched, writes since a moment ago."""
    folders = []
    with suppress(OSError), os.scandir(runs_dir) as entries:
        folders = [entry.path for entry in entries if entry.is_dir() and entry.stat().st_mtime >= since - EVERY_S]
    for folder in map(Path, folders):
        if not (folder / RUN_FILE).is_file():
            continue
        writer = str(read_description(folder).get(PROCESS))
        number = writer.rpartition("-")[2]
        if writer == mark or (number.isdigit() and _descends(int(number), process)):
            return RunFollower(folder)
    return None


def _descends(process: int, ancestor: int) -> bool:
    parent: int | None = process
    for _ in range(ANCESTORS_MAX):
        parent = parent_of(parent) if parent else None
        if parent == ancestor:
            return True
    return False


class _Under:
    """The last lines of a terminal. Each change is one write, so that nothing of the script comes between."""

    def __init__(self, terminal: IO[str]) -> None:
        self._terminal = terminal
        self._console = Console(file=terminal, highlight=False, emoji=False, markup=False, force_terminal=True)
        self._size = (0, 0)
        self._height = 0

    def draw(self, picture: Picture) -> None:
        size = os.get_terminal_size(self._terminal.fileno())
        if tuple(size) != self._size:
            self._open(size.columns, size.lines)
        if not self._height:
            return
        frame = Frame(size.columns, self._height - 1, keys=False)
        lines, _ = lines_of(picture, View(pane=""), frame)
        ruled = [Text("─" * size.columns, style="dim"), *lines, *[Text()] * (frame.height - len(lines))]
        first = size.lines - self._height + 1
        drawn = "".join(f"\x1b[{first + place};1H\x1b[2K{self._styled(line)}" for place, line in enumerate(ruled))
        self._write(f"\x1b7{drawn}\x1b8")

    def close(self) -> None:
        """The whole terminal scrolls again, and the picture is gone."""
        if self._height:
            first = self._size[1] - self._height + 1
            self._write(f"\x1b7\x1b[r\x1b[{first};1H\x1b[J\x1b8")

    def _open(self, columns: int, lines: int) -> None:
        self.close()
        self._size = (columns, lines)
        self._height = min(LINES_MAX, lines // 2)
        if self._height < LINES_MIN:
            self._height = 0
            return
        # The last lines are scrolled free, and then left out of the region that scrolls.
        free = "\n" * self._height
        self._write(f"{free}\x1b7\x1b[1;{lines - self._height}r\x1b8\x1b[{self._height}A")

    def _styled(self, line: Text) -> str:
        with self._console.capture() as printed:
            self._console.print(line, end="", crop=False, soft_wrap=True)
        return printed.get()

    def _write(self, text: str) -> None:
        self._terminal.write(text)
        self._terminal.flush()
