"""JSON lines over a socket, between the pool and the processes that run trials. Torch-free."""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Any

MESSAGE_BYTES_MAX = 64 << 20


class Line:
    """One end of a connection. A message is a JSON document on one line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._text = b""

    def send(self, message: dict[str, Any]) -> None:
        self.connection.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")

    def receive(self, wait_s: float | None = None) -> dict[str, Any] | None:
        """The next message; None on timeout.

        Raises:
            EOFError: the other end is closed.
        """
        until = None if wait_s is None else time.monotonic() + wait_s
        while b"\n" not in self._text:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self.connection], [], [], left)[0]:
                return None
            try:
                part = self.connection.recv(1 << 16)
            except OSError:
                part = b""
            if not part or len(self._text) > MESSAGE_BYTES_MAX:
                raise EOFError
            self._text += part
        line, _, self._text = self._text.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        self.connection.close()
