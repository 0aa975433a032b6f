"""The server process from the pool's side: started on first use, asked for launches, ended with the pool.

Torch-free: the process itself (``server``) imports torch.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.replay.child_processes import about_to_launch, sharing_cores
from steadytrain.trial_runs.socket_messages import Line

START_S_MAX, CLOSE_S_MAX = 120.0, 5.0
LOG_LINES_SHOWN = 2


class ServerProcess:
    """Restarts a server that was lost. ``scratch`` is the folder for its socket and log, ``variables`` are environment
    variables of every script."""

    def __init__(self, scratch: Path, variables: Mapping[str, str] = {}) -> None:
        self._variables = dict(variables)
        self._socket, self._log = scratch / "server", scratch / "server.txt"
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._early: frozenset[str] | None = None
        self._closed = False

    def early_kinds(self) -> frozenset[str]:
        """The kinds of changes that act before the script builds its model and loaders.

        Raises:
            UsageError: the process did not start.
        """
        with self._lock:
            if self._early is None:
                self._early = self._start()
            return self._early

    def connect(self, asked: Mapping[str, Any]) -> Line:
        """A connection to a script that is launched as ``asked``.

        Raises:
            UsageError: the process did not start.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._early = self._start()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._socket))
        line = Line(connection)
        line.send(dict(asked))
        return line

    def close(self) -> None:
        """Ends the process. Idempotent."""
        self._closed = True
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(CLOSE_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> frozenset[str]:
        """Starts the process. Its first line lists the early kinds."""
        if self._closed:
            raise UsageError("the trials were ended")
        self._socket.unlink(missing_ok=True)
        about_to_launch()
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "steadytrain.trial_runs.server", str(self._socket)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=sharing_cores({**os.environ, **self._variables}),
                start_new_session=True,
            )
        self._process = process
        assert process.stdout is not None
        try:
            in_time = select.select([process.stdout], [], [], START_S_MAX)[0]
            said = process.stdout.readline() if in_time else b""
        except ValueError:  # closed by `close` of another thread in the meantime
            raise UsageError("the trials were ended") from None
        if not said.startswith(b"ready "):
            raise UsageError(f"the trial server did not start: {tail_of(self._log)}")
        return frozenset(json.loads(said.removeprefix(b"ready ")))


def tail_of(log: Path) -> str:
    """The last lines of a log, joined by " | "."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return " | ".join(line.strip() for line in lines[-LOG_LINES_SHOWN:])
