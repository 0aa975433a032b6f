"""The server of `steadytrain ui`: the standard library's, with a bound on threads and on waiting.

On loopback a request must name this machine: a page of another host whose name was pointed here gets nothing (DNS
rebinding). On any other address every request needs the token, in a cookie that no other host is sent. A request that
starts something (POST) is answered on loopback only.
"""

from __future__ import annotations

import hmac
import io
import ipaddress
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from steadytrain.live.served.answers import Answer, moved, refused

THREADS_MAX = 32
WAIT_S = 15.0
PATH_LENGTH_MAX = 4_000
QUERY_FIELDS_MAX = 20
COOKIE = "steadytrain-token"
"""Followed by the port: cookies of one host go to all its ports."""

Route = Callable[[tuple[str, ...], Mapping[str, str]], Answer]
"""From the parts of a path, and the query of a GET or the headers of a POST."""


class UiServer(ThreadingHTTPServer):
    """Answers requests by ``route``, and POST by ``act``, until it is shut down. ``token`` is None where none is
    needed."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, route: Route, token: str | None, act: Route | None = None) -> None:
        self.route = route
        self.act = act
        self.token = token
        self.host = host
        self._room = threading.BoundedSemaphore(THREADS_MAX)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Without the look-up of this host's name, which asks other hosts and may wait for them."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.host, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        self._room.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes its connection early is no error, and nothing else comes here."""

    def answer(self, target: str, headers: Mapping[str, str]) -> Answer:
        """The answer to a GET request."""
        if self.token is None and not is_loopback_name(headers.get("host", "")):
            return refused(421, "this address is not that of this server")
        if len(target) > PATH_LENGTH_MAX:
            return refused(414, "the address is too long")
        try:
            split = urlsplit(target)
            query = dict(parse_qsl(split.query, max_num_fields=QUERY_FIELDS_MAX))
        except ValueError as error:
            return refused(400, f"the address cannot be read ({error})")
        if self.token is not None:
            cookie = f"{COOKIE}-{self.server_port}"
            if _same(query.get("token", ""), self.token):
                held = f"{cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
                return moved(f"/{split.path.lstrip('/')}", {"Set-Cookie": held})
            if not _same(_cookie(headers.get("cookie", ""), cookie), self.token):
                return refused(403, "this page needs the token that `steadytrain ui` printed: open the address with it")
        parts = tuple(unquote(part) for part in split.path.split("/") if part)
        return self.route(parts, query)

    def acted(self, target: str, headers: Mapping[str, str]) -> Answer:
        """The answer to a POST request."""
        if self.act is None or self.token is not None:
            return refused(403, "nothing is started from other machines: run the command in a terminal of this machine")
        if not is_loopback_name(headers.get("host", "")):
            return refused(421, "this address is not that of this server")
        if len(target) > PATH_LENGTH_MAX or headers.get("content-length", "0") != "0":
            return refused(413, "the request is too long")
        return self.act(tuple(unquote(part) for part in urlsplit(target).path.split("/") if part), headers)


class _Handler(BaseHTTPRequestHandler):
    server: UiServer
    timeout = WAIT_S
    server_version, sys_version = "steadytrain", ""

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_WithinTime(self.connection))

    def do_GET(self) -> None:
        self._answer(self.server.answer)

    def do_POST(self) -> None:
        self._answer(self.server.acted)

    def _answer(self, method: Callable[[str, Mapping[str, str]], Answer]) -> None:
        try:
            answer = method(self.path, {name.lower(): value for name, value in self.headers.items()})
        except Exception as error:  # one page fails, the server goes on
            answer = refused(500, f"this page could not be made ({type(error).__name__}: {error})")
        self.send_response(answer.status)
        own = {
            "Content-Type": answer.kind,
            "Content-Length": str(len(answer.body)),
            "Content-Security-Policy": answer.policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in {**own, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


class _WithinTime(io.RawIOBase):
    """Reads a request, all of it within ``WAIT_S``: clients that send a byte now and then would hold every thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = time.monotonic() + WAIT_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(self._until - time.monotonic(), 1e-3))
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(WAIT_S)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback_name(header: str) -> bool:
    """Whether the header ``Host`` names loopback. No other name does: one that somebody else owns may point here."""
    try:
        return is_loopback(urlsplit(f"//{header}").hostname or "")
    except ValueError:
        return False


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _cookie(header: str, name: str) -> str:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
