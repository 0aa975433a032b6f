"""A query whose time is over before it has begun is interrupted too, and nobody waits for it without end."""

from __future__ import annotations

import threading
import time

import pytest

from steadytrain.core.errors import UsageError
from steadytrain.storage.query_bounds import Deadline, interruptible

BEGINS_AFTER_S, WAIT_S_MAX = 0.1, 10.0


class Forgetful:
    """A connection that forgets interrupts that came before its query began, as DuckDB does."""

    def __init__(self) -> None:
        self._interrupted = threading.Event()
        self.stopped = False

    def interrupt(self) -> None:
        self._interrupted.set()

    def query(self) -> None:
        time.sleep(BEGINS_AFTER_S)
        self._interrupted.clear()
        self.stopped = self._interrupted.wait(WAIT_S_MAX)


def test_an_interrupt_before_the_query_begins_is_repeated() -> None:
    connection = Forgetful()
    with pytest.raises(UsageError, match=r"no answer within 0 s"):
        interruptible(connection, connection.query, Deadline(0.0))
    assert connection.stopped
