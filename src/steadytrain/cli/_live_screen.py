"""The terminal of ``steadytrain top``: the alternate screen with keys, lines for a plain terminal, one picture.

What is drawn is decided in ``live``. The screen, the keys and the size are the terminal's own again however the command
ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from rich.console import Console, Group
from rich.live import Live

from steadytrain.cli import _keys, _terminal
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say
from steadytrain.cli._terminal import plain
from steadytrain.live.drawing import Frame, lines_of, summary_line
from steadytrain.live.follower import RunFollower
from steadytrain.live.picture import Picture
from steadytrain.live.view import View, held, pressed

TICK_S = 0.25
"""Seconds between two checks of the size of the terminal. A key is read at once."""

LINES_EVERY_S = 10.0
"""A plain terminal gets a line this often, or as often as ``--every`` says if that is slower."""

ONCE_HEIGHT = 40
PIPE_WIDTH = 100


@dataclass(frozen=True)
class Choices:
    """``every_s`` between two polls, and the run folder for the next command."""

    every_s: float
    path: Path


def terminal_kind() -> Literal["screen", "dumb", "pipe"]:
    """What standard output is, and whether keys can be read."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return "pipe"
    return "dumb" if os.environ.get("TERM", "dumb") in ("dumb", "unknown") else "screen"


def print_once(follower: RunFollower) -> None:
    """One picture on the ordinary screen."""
    console = _terminal.console()
    width = console.width if sys.stdout.isatty() else shutil.get_terminal_size((PIPE_WIDTH, ONCE_HEIGHT)).columns
    _print(follower.poll(time.time()), Frame(width, ONCE_HEIGHT, ascii_only=_ascii_only(), keys=False))


def show_lines(follower: RunFollower, choices: Choices) -> None:
    """A line now and then, until the run is over: for a terminal that cannot move its cursor."""
    seen: set[tuple[str, str, int]] = set()
    while True:
        picture = follower.poll(time.time())
        for shown in reversed(picture.symptoms):
            key = (shown.symptom.name, shown.rank, shown.symptom.first_step)
            if key not in seen:
                seen.add(key)
                say(f"{shown.symptom.severity}: {shown.symptom.name} at step {shown.symptom.first_step:,}")
        say(summary_line(picture))
        if picture.is_over:
            return
        try:
            time.sleep(max(LINES_EVERY_S, choices.every_s))
        except KeyboardInterrupt:
            return


def show_live(follower: RunFollower, choices: Choices) -> None:
    """The picture on the alternate screen, until the run ends or a key says so; then on the ordinary screen."""
    console = Console(file=plain(sys.stdout), highlight=False, emoji=False, markup=False)
    picture = follower.poll(time.time())
    screen = _Screen(follower, choices, console, picture)
    with _ended_by_signals(), _keys.unbuffered(), suppress(KeyboardInterrupt):
        screen.run()
    _print(screen.picture, Frame(console.width, max(1, console.height - 3), ascii_only=_ascii_only(), keys=False))
    if screen.picture.is_over:
        say_next_of("show", choices.path, why="what happened in it")
    else:
        say_next_of("top", choices.path, why="the run goes on")


class _Screen:
    """The loop of the alternate screen."""

    def __init__(self, follower: RunFollower, choices: Choices, console: Console, picture: Picture) -> None:
        self.picture = picture
        self._follower = follower
        self._choices = choices
        self._console = console
        self._view = View()
        self._size = console.size

    def run(self) -> None:
        # A run that is over already stays until a key ends it; one that ends meanwhile ends this too.
        was_over = self.picture.is_over
        due = time.monotonic() + self._choices.every_s
        live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        with live:
            live.update(self._drawn(), refresh=True)
            while not self._view.quit and (was_over or not self.picture.is_over):
                keys = _keys.wait_for_keys(min(TICK_S, max(0.0, due - time.monotonic())))
                for key in keys:
                    self._view = pressed(self._view, key)
                new = bool(keys)
                if time.monotonic() >= due:
                    due = time.monotonic() + self._choices.every_s
                    if not self._view.paused:
                        self.picture = self._follower.poll(time.time())
                        new = True
                if new or self._console.size != self._size:
                    live.update(self._drawn(), refresh=True)

    def _drawn(self) -> Group:
        self._size = self._console.size
        frame = Frame(self._size.width, self._size.height, ascii_only=_ascii_only())
        lines, ends = lines_of(self.picture, self._view, frame)
        self._view = held(self._view, ends)
        return Group(*lines)


def _print(picture: Picture, frame: Frame) -> None:
    lines, _ = lines_of(picture, View(pane=""), frame)
    _terminal.show(*lines, on=Console(width=frame.width, highlight=False, emoji=False, markup=False))


def _ascii_only() -> bool:
    return "utf" not in (sys.stdout.encoding or "").lower()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command in order, so that the terminal is as it was before."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
