"""Runs a function in a copy of this process: what the script does there cannot reach this process or its files.

The copy leads a session of its own, so that everything it started can be ended with it. It is made before torch is
imported and before any thread is started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from steadytrain.replay.child_processes import die_with_parent
from steadytrain.replay.written_files import note_written

INTERRUPT_S = 20.0
"""Time for the copy to end after an interrupt, before it is ended."""

LOOK_S = 0.05
ANSWER = "answer.json"
FAILED_STATUS = 1
Send = Callable[[dict[str, Any]], None]


def in_a_copy(does: Callable[[Path, Send], None]) -> tuple[dict[str, Any], int]:
    """Calls ``does`` in a copy with a scratch folder and a function that sends its answer.

    Returns the answer ({} if there is none) and the copy's exit status. A signal that ended the copy ends this process
    too.
    """
    with tempfile.TemporaryDirectory(prefix="steadytrain-preflight-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        sys.stdout.flush()
        sys.stderr.flush()
        copy = os.fork()
        if copy == 0:
            _be_the_copy(does, scratch)
        try:
            status = _waited(copy)
        finally:
            with suppress(OSError):
                os.killpg(copy, signal.SIGKILL)
        note_written(scratch)
        with suppress(OSError, ValueError):
            answer: dict[str, Any] = json.loads((scratch / ANSWER).read_text(encoding="utf-8"))
            return answer, status
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return {}, status


def _be_the_copy(does: Callable[[Path, Send], None], scratch: Path) -> None:
    os.setsid()
    die_with_parent()

    def send(answer: dict[str, Any]) -> None:
        (scratch / f"{ANSWER}.part").write_text(json.dumps(answer), encoding="utf-8")
        os.replace(scratch / f"{ANSWER}.part", scratch / ANSWER)

    leave = os._exit
    try:
        does(scratch, send)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        leave(FAILED_STATUS)


def _waited(copy: int) -> int:
    """The exit status of the copy, negative for a signal. An interrupt goes on to it."""
    until = None
    while True:
        try:
            process, status = os.waitpid(copy, 0 if until is None else os.WNOHANG)
            if process:
                return os.waitstatus_to_exitcode(status)
            if until is not None and time.monotonic() > until:
                os.killpg(copy, signal.SIGKILL)
            time.sleep(LOOK_S)
        except KeyboardInterrupt:
            until = time.monotonic() + INTERRUPT_S
            os.killpg(copy, signal.SIGINT)
