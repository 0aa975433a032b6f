"""Servers of the tests' own that receive alerts: a web hook, a mail server, and one that never answers."""

from __future__ import annotations

import http.server
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def web_hook(status: int = 200) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A port that takes JSON, and what came; each document also has its ``path``."""
    got: list[dict[str, Any]] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            got.append({**json.loads(text), "path": self.path})
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with _served(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)) as port:
        yield port, got


@contextmanager
def mail_server() -> Iterator[tuple[int, list[str]]]:
    """A port that speaks enough SMTP to take mails, and the mails."""
    got: list[str] = []

    class Mail(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 test\r\n")
            for line in self.rfile:
                word = line[:4].upper()
                if word == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = iter(self.rfile.readline, b".\r\n")
                    got.append(b"".join(lines).decode())
                elif word == b"QUIT":
                    self.wfile.write(b"221 bye\r\n")
                    return
                self.wfile.write(b"250 ok\r\n")

    with _served(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail)) as port:
        yield port, got


@contextmanager
def silent_server() -> Iterator[int]:
    """A port that accepts connections and never says anything."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield listening.getsockname()[1]


def dead_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def _served(server: socketserver.TCPServer) -> Iterator[int]:
    server.daemon_threads = True  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
