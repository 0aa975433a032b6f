"""A script that is ended by SIGTERM: one line names it, then the signal ends the process as it would have without us.

Python's own default has no last word, so a handler stands in for it. To the script it is not there:
``signal.getsignal`` and ``signal.signal`` answer ``SIG_DFL`` for it, and a handler of the script's own replaces it.
Nothing is closed here: the interrupted code may hold any lock. A call of native code delays the handler to its end.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable
from typing import Any


def name_termination(last_line: Callable[[], str]) -> None:
    """From here on SIGTERM writes ``last_line()`` to standard error before it ends this process."""
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    process = os.getpid()
    set_handler, get_handler = signal.signal, signal.getsignal

    def handle(number: int, frame: Any) -> None:
        set_handler(signal.SIGTERM, signal.SIG_DFL)
        if os.getpid() == process:
            with contextlib.suppress(Exception):  # the process is about to end, whatever happens here
                os.write(2, f"steadytrain: {last_line()}\n".encode())
        os.kill(os.getpid(), signal.SIGTERM)

    @functools.wraps(set_handler)
    def hidden_signal(number: Any, handler: Any) -> Any:
        before = set_handler(number, handler)
        return signal.SIG_DFL if before is handle else before

    @functools.wraps(get_handler)
    def hidden_getsignal(number: Any) -> Any:
        found = get_handler(number)
        return signal.SIG_DFL if found is handle else found

    def leave_in_child() -> None:
        if get_handler(signal.SIGTERM) is handle:
            set_handler(signal.SIGTERM, signal.SIG_DFL)

    set_handler(signal.SIGTERM, handle)
    for name, stand_in in (("signal", hidden_signal), ("getsignal", hidden_getsignal)):
        setattr(signal, name, stand_in)
    os.register_at_fork(after_in_child=leave_in_child)
