"""The server of ``steadytrain ui``: who may ask, what every answer carries, and that one bad request ends nothing."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from steadytrain.live.served import http_server
from steadytrain.live.served.answers import Answer, html
from steadytrain.live.served.http_server import UiServer, is_loopback, is_loopback_name

TOKEN = "a-token"


def route(parts: tuple[str, ...], query: Mapping[str, str]) -> Answer:
    if parts == ("fails",):
        raise ZeroDivisionError("<b>our own error</b>")
    return html(f"{'/'.join(parts)} {dict(query)}")


@contextmanager
def serving(token: str | None = None) -> Iterator[UiServer]:
    with UiServer("127.0.0.1", 0, route, token) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)


def get(server: UiServer, target: str, method: str = "GET", **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request(method, target, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def test_an_answer_over_the_wire() -> None:
    with serving() as server:
        status, body, headers = get(server, "/run/a%20b%2F..?first=1")
        assert (status, body) == (200, b"run/a b/.. {'first': '1'}")
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert get(server, "/run", method="HEAD")[:2] == (200, b"")
        assert get(server, f"/{'a' * 5000}")[0] == 414
        assert get(server, f"/?{'&'.join(f'a{n}=1' for n in range(21))}")[0] == 400
        status, body, _ = get(server, "/fails")
        assert (status, b"ZeroDivisionError" in body, b"<b>our" in body) == (500, True, False)
        assert get(server, "/run")[0] == 200


def test_a_request_that_starts_something_is_answered_on_loopback_only() -> None:
    with serving() as server:
        assert get(server, "/run", method="POST")[0] == 403
        server.act = lambda parts, headers: html(f"{parts} {headers['origin']}")
        assert get(server, "/a/b", method="POST", Origin="here")[:2] == (200, b"('a', 'b') here")
        assert get(server, "/a", method="POST", Host="evil.example")[0] == 421
        assert get(server, "/a", method="POST", **{"Content-Length": "5"})[0] == 413
    with serving(TOKEN) as server:
        server.act = route
        cookie = f"steadytrain-token-{server.server_port}={TOKEN}"
        assert get(server, "/a", method="POST", Cookie=cookie)[0] == 403


def test_a_request_that_comes_byte_by_byte_does_not_hold_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "WAIT_S", 0.2)
    with serving() as server, socket.create_connection(("127.0.0.1", server.server_port), 30) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: ")
        client.settimeout(0.02)
        for _ in range(1_000):  # each byte comes within the wait, the request does not
            try:
                client.sendall(b"y")
                assert client.recv(1) == b""
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the server still reads")


def test_a_name_that_somebody_points_here_gets_nothing() -> None:
    with serving() as server:
        assert get(server, "/", Host="evil.example:80")[0] == 421
        assert get(server, "/", Host="[")[0] == 421
        assert get(server, "/", Host=f"localhost:{server.server_port}")[0] == 200


def test_without_the_token_nothing_is_answered() -> None:
    with serving(TOKEN) as server:
        for target, headers in (
            ("/", {}),
            ("/?token=", {}),
            ("/?token=wr%C3%B6ng", {}),
            ("/", {"Cookie": f"steadytrain-token-{server.server_port}=wrong"}),
            ("/", {"Cookie": f"steadytrain-token-1={TOKEN}"}),
        ):
            status, body, _ = get(server, target, **headers)
            assert (status, TOKEN.encode() in body) == (403, False)
        status, _, headers_back = get(server, f"//evil.example/x?token={TOKEN}")
        assert status == 303
        assert headers_back["Location"].startswith("/")
        assert not headers_back["Location"].startswith("//")
        held = headers_back["Set-Cookie"]
        assert "HttpOnly" in held
        assert "SameSite=Strict" in held
        assert get(server, "/run", Cookie=held.split(";")[0], Host="gpu-box.example")[0] == 200


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("gpu-box", False)],
)
def test_only_loopback_needs_no_token(host: str, own: bool) -> None:
    assert is_loopback(host) is own
    assert is_loopback_name(f"[{host}]:1" if ":" in host else f"{host}:1") is own
