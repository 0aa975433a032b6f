"""The folder of this file goes on the import path, so that tests share ``builders``. No test leaves a thread."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what runs in its background, and a process that is started from there could not be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)

THREAD_END_S_MAX = 5.0


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("steadytrain")}


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = own_threads()
    yield
    deadline = time.monotonic() + THREAD_END_S_MAX
    while own_threads() - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not own_threads() - before, "a test left a thread behind"
