"""Runs `steadytrain diagnose` for a page, in a process of its own: one at a time, and never after the server.

The command decides whether the recorded script may run: for a bundle that was recorded elsewhere it refuses in one
line, which the page shows. There is no question and no `--trust` here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.report.wording import clean

LINES_KEPT = 20
LINE_LENGTH_MAX = 4000
ENDS_KEPT = 100
STOP_WAIT_S = 20.0
"""After an interrupt a diagnosis ends its trials and removes its scratch folders. Then it is killed."""

PREFIX = "steadytrain: "


class Diagnosing:
    """Starts and stops a diagnosis of a bundle or run. ``command`` gives its command line.

    The thread that starts the process also waits for it: on Linux the process asks to be killed with that thread.
    """

    def __init__(self, command: Callable[[Path], Sequence[str]]) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._source: Path | None = None
        self._child: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._stopped = self._closed = False
        self._ends: OrderedDict[Path, str] = OrderedDict()

    def start(self, source: Path) -> None:
        """
        Raises:
            UsageError: another one is running, or the server ends.
        """
        with self._lock:
            if self._closed:
                raise UsageError("the server is ending")
            if self._source == source:
                return
            if self._source is not None:
                name = clean(f"{self._source.parents[1].name}/{self._source.name}")
                raise UsageError(f"a diagnosis of {name} is running; wait for it or stop it first")
            self._source, self._child, self._stopped = source, None, False
            self._ends.pop(source, None)
            self._thread = threading.Thread(target=self._run, args=(source,), daemon=True)
            self._thread.start()

    def stop(self, source: Path) -> None:
        """Interrupt the diagnosis of ``source``, if it is running. Its finished trials are kept."""
        with self._lock:
            if self._source != source or self._stopped:
                return
            self._stopped = True
            child = self._child
        if child is not None:
            _interrupt(child)

    def is_running(self, source: Path) -> bool:
        with self._lock:
            return self._source == source

    def end_of(self, source: Path) -> str:
        """How the last diagnosis from a page ended: what it said, "" if it gave an answer or there was none."""
        with self._lock:
            return self._ends.get(source, "")

    def close(self) -> None:
        """End what is running, and start nothing more."""
        with self._lock:
            self._closed = True
            source, thread = self._source, self._thread
        if source is not None and thread is not None:
            self.stop(source)
            thread.join(STOP_WAIT_S + 5)

    def _run(self, source: Path) -> None:
        try:
            end = self._ended(source)
        except OSError as error:
            end = f"the diagnosis could not be started ({error})"
        with self._lock:
            self._source = self._child = None
            if end:
                self._ends[source] = end
                while len(self._ends) > ENDS_KEPT:
                    self._ends.popitem(last=False)

    def _ended(self, source: Path) -> str:
        child = subprocess.Popen(
            self._command(source),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        with self._lock:
            self._child, stopped = child, self._stopped
        if stopped:
            _interrupt(child)
        assert child.stderr is not None
        lines: deque[str] = deque(maxlen=LINES_KEPT)
        with child.stderr:
            while line := child.stderr.readline(LINE_LENGTH_MAX):
                lines.append(line.rstrip("\n"))
        status = child.wait()
        if status == 0:
            return ""
        said = next((line for line in reversed(lines) if line.startswith(PREFIX)), "")
        return clean(said.removeprefix(PREFIX), length_max=LINE_LENGTH_MAX) or f"diagnose ended with status {status}"


def _interrupt(child: subprocess.Popen[str]) -> None:
    """As Ctrl-C does. What has not ended after a while is killed with all that it launched."""
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)

    def kill() -> None:
        with suppress(ProcessLookupError, PermissionError):
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)

    timer = threading.Timer(STOP_WAIT_S, kill)
    timer.daemon = True
    timer.start()
