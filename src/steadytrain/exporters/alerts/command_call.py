"""Calls the user's command with an alert as JSON on its standard input, within a time limit.

The command is a line for the shell. Its output is discarded, save the end of what it writes on standard error when it
fails. A command that does not end is killed with all that it started.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, final

from steadytrain.exporters.alerts.alert import Alert
from steadytrain.exporters.exporter import ExporterError
from steadytrain.storage.documents import as_json
from steadytrain.storage.redaction import redact_text

COMMAND_S_MAX = 30.0
ERROR_BYTES_KEPT = 300
CHUNK_BYTES = 1 << 16


@final
class CommandCall:
    """``command`` runs in the folder and with the ``environment`` of the script."""

    def __init__(self, command: str, environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = dict(environment)
        words = [word for word in shlex.split(command) if "=" not in word]
        first = os.path.basename(words[0]) if words else "sh"
        self.name = f"the command {redact_text(first)}"

    def send(self, alert: Alert, held: str) -> None:
        """Call it once; ``held`` is the line about alerts that were held back.

        Raises:
            ExporterError: it could not be started, ended with another status than 0, or did not end in time.
        """
        document = as_json({**alert.to_json(), "held": held}, ensure_ascii=False)
        with tempfile.TemporaryFile() as given:  # not a pipe: the command may not read it
            given.write(document.encode("utf-8", "backslashreplace") + b"\n")
            given.seek(0)
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", self._command],
                    stdin=given,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=self._environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise ExporterError(f"it could not be started: {error.strerror}") from None
        assert process.stderr is not None
        said = bytearray()
        reader = threading.Thread(target=_read, args=(process.stderr, said), daemon=True)
        reader.start()
        try:
            status = process.wait(COMMAND_S_MAX)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise ExporterError(f"it did not end within {COMMAND_S_MAX:g} s and was killed") from None
        reader.join(0.5)  # what it left in the background may hold its standard error open
        if status:
            raise ExporterError(f"it ended with status {status}{_shown(said)}")


def _read(pipe: IO[bytes], said: bytearray) -> None:
    """Keep the end of what is written, and let no writer wait."""
    with pipe:
        while chunk := os.read(pipe.fileno(), CHUNK_BYTES):
            said += chunk
            del said[:-ERROR_BYTES_KEPT]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _shown(said: bytearray) -> str:
    text = redact_text(" ".join(bytes(said).decode("utf-8", "replace").split()))
    return f": {text}" if text else ""
