"""A command in a terminal of 80 x 24 characters: what it prints, and keys for it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Sequence

COLUMNS, LINES = 80, 24
READ_BYTES = 1 << 16
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """Runs ``words``. Everything that it has printed so far is ``all``."""

    def __init__(self, words: Sequence[str], **environment: str) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.environ.update(TERM="xterm", PYTHONUTF8="1", **environment)
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
            os.execvp(words[0], list(words))
        self.all = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)  # a command that still runs gets SIGHUP
        if self._pid:
            os.waitpid(self._pid, 0)

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait_for(self, text: str, seconds: float = 120) -> str:
        """What was printed so far, once ``text`` is in it; colours in between do not count."""
        until = time.monotonic() + seconds
        while text not in COLOURS.sub("", self.all) and time.monotonic() < until and self._read(0.5):
            pass
        assert text in COLOURS.sub("", self.all), self.all[-3000:]
        return self.all

    def status(self) -> int:
        """The exit status, after the rest of the output."""
        while self._read(120):
            pass
        self._pid, ended = 0, os.waitpid(self._pid, 0)[1]
        return os.waitstatus_to_exitcode(ended)

    def _read(self, seconds: float) -> bool:
        """Read what comes within ``seconds``. False if nothing more can come."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._terminal, READ_BYTES)
        except OSError:  # the other end is closed
            data = b""
        self.all += data.decode("utf-8", errors="replace")
        return bool(data)
