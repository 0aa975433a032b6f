"""The link between the training thread and an exporter: two bounded queues and a thread.

The training thread appends to a deque and continues. There is no lock to wait for, or to stay locked after a fork. The
exporter thread wakes at most once a second and hands over what has accumulated. If the exporter is slower than the run,
the oldest rows are dropped and counted; symptoms and incidents have their own queue and stay. An exporter that fails
repeatedly is dropped; one that hangs is abandoned.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from steadytrain.exporters.exporter import Exporter, ExporterError, ExporterGoneError, Run
from steadytrain.exporters.run_places import keep_place
from steadytrain.storage.redaction import redact_text

FLUSH_EVERY_S = 1.0
ROWS_WAITING_MAX = 4096
MARKERS_WAITING_MAX = 256
FAILURES_MAX = 3
LET_GO_S = 0.5
LINE_CHARACTERS_MAX = 300
FIRST_FLUSH_AFTER_S = 0.05
"""A short run is visible early, and a run that ends at once does not wait for the first flush."""

Send = Callable[[Exporter], None]
Tell = Callable[[str], None]


class Outlet:
    """One exporter with its queues and its thread.

    Args:
        name: its name in messages.
        make: makes the exporter; called on the thread, because it may import much.
        run: passed to the exporter's ``open``.
        tell: prints one line for the user.
    """

    def __init__(self, name: str, make: Callable[[], Exporter], run: Run, tell: Tell) -> None:
        self.name = name
        self.dropped = 0
        self._make = make
        self._run = run
        self._tell = tell
        self._rows: deque[Send] = deque(maxlen=ROWS_WAITING_MAX)
        self._markers: deque[Send] = deque(maxlen=MARKERS_WAITING_MAX)
        self._ended: str | None = None
        self._wake = threading.Event()
        self._exporter: Exporter | None = None
        self._failures = 0
        self._why = ""
        self._told_failure = False
        self._thread = threading.Thread(target=self._work, name=f"steadytrain-{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still accepts data."""
        return self._ended is None and self._thread.is_alive()

    def put(self, send: Send) -> None:
        """Hand over data that may be dropped if too much waits. Never blocks."""
        if len(self._rows) == ROWS_WAITING_MAX:
            self.dropped += 1
        self._rows.append(send)

    def put_marker(self, send: Send) -> None:
        """Hand over data that is more important than any row. Never blocks."""
        self._markers.append(send)

    def ask_to_close(self, ended: str) -> None:
        """Tell the thread to write what waits and end. Returns at once."""
        if self._ended is None:
            self._ended = ended
        self._wake.set()

    def wait_closed(self, wait_s: float) -> None:
        """Wait for the thread at most ``wait_s``. An exporter that hangs is abandoned."""
        self._thread.join(max(0.0, wait_s))
        if self._thread.is_alive():
            if self._exporter is not None:
                self._exporter.let_go()
            self._thread.join(LET_GO_S)
        if self._thread.is_alive():
            self._tell(f"warning: {self.name} does not respond; unwritten data is lost")
        if self.dropped:
            self._tell(f"note: {self.name} was slower than the run: {self.dropped} rows of scalars were dropped")

    def forget(self) -> None:
        """In a forked child, where the thread does not exist."""
        self._ended = "forgotten"
        if self._exporter is not None:
            self._exporter.forget()

    def _work(self) -> None:
        try:
            exporter = self._exporter = self._make()
            exporter.open(self._run)
            keep_place(self._run, exporter)
        except Exception as error:
            self._ended = self._ended or "failed"
            self._tell(f"warning: nothing goes to {self.name}: {in_a_line(error)}")
        else:
            self._hand_over_until_closed(exporter)
            self._close(exporter)

    def _hand_over_until_closed(self, exporter: Exporter) -> None:
        wait_s = FIRST_FLUSH_AFTER_S
        while True:
            self._wake.wait(wait_s)
            wait_s = FLUSH_EVERY_S
            last = self._ended is not None
            if self._rows or self._markers:
                self._hand_over(exporter)
            elif not last:
                self._idle(exporter)
            if self._failures >= FAILURES_MAX:
                self._ended = self._ended or "failed"
                self._tell(f"warning: nothing more goes to {self.name}: {self._why}")
                return
            if last and not (self._rows or self._markers):
                return

    def _hand_over(self, exporter: Exporter) -> None:
        """Write one batch, markers first. A failed item is not retried; those behind it come with the next batch."""
        try:
            for queue in (self._markers, self._rows):
                for _ in range(len(queue)):
                    queue.popleft()(exporter)
            exporter.flush()
            self._failures = 0
        except ExporterGoneError as error:
            self._why, self._failures = in_a_line(error), FAILURES_MAX
        except Exception as error:
            self._why = in_a_line(error)
            self._failures += 1
            if not self._told_failure and self._failures < FAILURES_MAX:
                self._told_failure = True
                self._tell(f"warning: {self.name} failed: {self._why}; training goes on")

    def _idle(self, exporter: Exporter) -> None:
        with contextlib.suppress(Exception):  # what it is about fails again, and is reported, with the next batch
            exporter.idle()

    def _close(self, exporter: Exporter) -> None:
        try:
            exporter.close(self._ended or "failed")
        except Exception as error:
            if self._failures < FAILURES_MAX:
                self._tell(f"warning: not everything went to {self.name}: {in_a_line(error)}")


def in_a_line(error: BaseException) -> str:
    """An error as one short line, because libraries put whole pages into their errors."""
    line = " ".join(str(error).split())
    if not isinstance(error, ExporterError):
        line = f"{type(error).__name__}: {line}"
    return redact_text(line)[:LINE_CHARACTERS_MAX]
