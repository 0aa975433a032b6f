"""Keys of a terminal, read without waiting for Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

READ_BYTES = 1024
_NAMES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page-up",
    b"\x1b[6~": "page-down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
}
_SINGLE = {"\r": "enter", "\n": "enter", "\t": "tab", "\x1b": "escape", "\x7f": "backspace", "\x08": "backspace"}


@contextmanager
def unbuffered() -> Iterator[None]:
    """Standard input gives each key at once and shows none, until the end. Ctrl-C still interrupts."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def wait_for_keys(seconds: float) -> list[str]:
    """The keys pressed within ``seconds``, as soon as there is one. ``q`` if the terminal is gone."""
    terminal = sys.stdin.fileno()
    ready, _, _ = select.select([terminal], [], [], seconds)
    if not ready:
        return []
    pressed = os.read(terminal, READ_BYTES)
    return names_of(pressed) if pressed else ["q"]


def names_of(pressed: bytes) -> list[str]:
    """The keys in what a terminal sent. Sequences of keys that have no name here are left out."""
    found = []
    while pressed:
        known = next((code for code in _NAMES if pressed.startswith(code)), None)
        if known is not None:
            found.append(_NAMES[known])
            pressed = pressed[len(known) :]
        elif pressed.startswith((b"\x1b[", b"\x1bO")) and len(pressed) > 2:
            end = next((place for place in range(2, len(pressed)) if 0x40 <= pressed[place] <= 0x7E), len(pressed) - 1)
            pressed = pressed[end + 1 :]
        else:
            text = pressed.decode("utf-8", errors="replace")
            found.append(_SINGLE.get(text[0], text[0]))
            pressed = text[1:].encode("utf-8", errors="replace")
    return found
