"""Attack: hostile requests to `steadytrain ui`, beside slow clients, broken runs and links out of its folder.

Requests are drawn by a seed: paths that climb out, methods that write, headers without an end, queries of any kind,
other hosts, broken and cut off protocol. One has survived if the server refuses or answers it, tells nothing of a file
outside its folder, says nothing of its own on the terminal, stays within its memory, and still answers an honest
request. At the end no file below the folder has changed. Slow clients hold connections open by a byte a second.

    python benchmarks/attack_served.py [--requests N] [--seconds S] [--seed N] [--json FILE]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import builders

REQUESTS = 600
MARK = "a-line-of-a-file-outside"
ANSWER_S_MAX = 120.0
SLOW_CLIENTS = 40
SLOW_S_MAX = 90.0
"""An honest client has its answer within this, on a busy machine too, however many slow ones there are."""

MEMORY_MB_MAX = 600
STATUSES = {200, 303, 400, 403, 404, 405, 413, 414, 421, 431, 500, 501, 505}


@dataclass(frozen=True)
class Asked:
    name: str
    survived: bool
    note: str = ""


def make_runs(place: Path) -> Path:
    """Runs, whole and broken, and links to what lies outside."""
    (place / "outside").mkdir()
    (place / "outside" / "run.json").write_text(json.dumps({"name": MARK}), encoding="utf-8")
    (place / "secret.txt").write_text(MARK, encoding="utf-8")
    root = place / "runs"
    bad = builders.bad_run(root / "bad")
    builders.quiet_run(root / "quiet")
    broken = builders.quiet_run(root / "broken")
    (broken / "run.json").write_text("[" * 100_000, encoding="utf-8")
    (root / "linked").symlink_to(place / "outside")
    (root / "<img src=x onerror=alert(1)>").symlink_to(bad)
    (root / "bad" / "incidents" / "away").symlink_to(place / "outside")
    return root


class Server:
    """`steadytrain ui` on a free port."""

    def __init__(self, root: Path, err: Path) -> None:
        self.err = err
        self._process = subprocess.Popen(
            [sys.executable, "-m", "steadytrain", "ui", "--port", "0", str(root)],
            stdout=subprocess.PIPE,
            stderr=err.open("w"),
            text=True,
        )
        assert self._process.stdout is not None
        found = re.search(r":(\d+)/", self._process.stdout.readline())
        if found is None:
            raise SystemExit(f"attack_served: the server did not start: {err.read_text()}")
        self.port = int(found[1])

    def send(self, request: bytes, *, wait_s: float = ANSWER_S_MAX) -> bytes:
        """What comes back; nothing if the server closes."""
        with closing(socket.create_connection(("127.0.0.1", self.port), wait_s)) as client:
            try:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it refused before it had read all
            answer = b""
            try:
                while piece := client.recv(1 << 16):
                    answer += piece
            except ConnectionError:
                pass
            return answer

    def honest(self) -> bytes:
        return self.send(b"GET /runs.json HTTP/1.1\r\nHost: localhost\r\n\r\n", wait_s=SLOW_S_MAX)

    @property
    def memory_mb(self) -> int:
        text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmHWM:\s+(\d+)", text)
        return int(found[1]) >> 10 if found else 0

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(ANSWER_S_MAX)


# -- hostile requests --------------------------------------------------------------------------------------------------

PLACES = (
    *("/", "/runs.json", "/run/bad", "/run/bad/state.json", "/run/bad/curve.json?signal=loss", "/run/bad/page"),
    *("/compare?a=bad&b=quiet", "/explain", "/explain/loss-spike", "/run/quiet/state.json", "/ui.css"),
)
CLIMBS = (
    *("/../secret.txt", "/run/../../secret.txt", "/run/%2e%2e%2f%2e%2e%2fsecret.txt/page"),
    *("/run/linked", "/run/linked/state.json", "/run/linked/page", "/run/bad/incident/away"),
    *("/run//etc/passwd/page", "/run/%2fetc%2fpasswd", "/run/bad%00/page", "/run/./bad/page", "/run/.hidden"),
    *("/compare?a=../../secret.txt&b=bad", "/compare?a=linked&b=bad", "/%2e%2e/%2e%2e/secret.txt"),
    *("/run/..%5c..%5csecret.txt", "/run/bad/incident/..%2f..", "/explain/../secret.txt", "//evil.example/x"),
    *("/run/broken/state.json", "/run/broken/page", "/run/%3Cimg%20src=x%20onerror=alert(1)%3E"),
)
QUERIES = (
    *("columns=0", "columns=-1", "columns=" + "9" * 5_000, "columns=1e9", "first=-1&last=5", "first=9&last=1"),
    *("signal=../../x", "signal=loss&first=1&last=" + "9" * 400, "&".join(f"a{n}=1" for n in range(200))),
    *("signal=loss&columns=\u0661", "signal=loss&first=%00&last=%ff", "%ff%fe=%ff", "a=bad&b=bad"),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", "")
HOSTS = ("localhost", "127.0.0.1:1", "evil.example", "localhost.evil.example", "[::1]", "[", "127.0.0.1@evil", "")


def drawn(chance: random.Random) -> tuple[str, bytes]:
    """A name and the bytes of a request."""
    return chance.choice((_climb, _query, _method, _headers, _host, _cut, _noise, _cross_site))(chance)


def _request(method: str, target: str, *lines: str, host: str = "localhost", body: str = "") -> bytes:
    head = "\r\n".join((f"{method} {target} HTTP/1.1", f"Host: {host}", *lines))
    return f"{head}\r\n\r\n{body}".encode("latin-1", "replace")


def _climb(chance: random.Random) -> tuple[str, bytes]:
    target = chance.choice(CLIMBS)
    if chance.random() < 0.3:
        target = target.replace("..", chance.choice(("%2e%2e", "..%2f..", "%252e%252e", "....//", "..;")))
    return f"climb {target}", _request("GET", target)


def _query(chance: random.Random) -> tuple[str, bytes]:
    query = chance.choice(QUERIES)
    target = chance.choice(("/run/bad/curve.json", "/compare", "/run/quiet/curve.json", "/")) + "?" + query
    return f"query {target[:80]}", _request("GET", target)


def _method(chance: random.Random) -> tuple[str, bytes]:
    method, target = chance.choice(METHODS), chance.choice((*PLACES, *CLIMBS))
    body = chance.choice(("", "a=1", "x" * 100_000))
    return f"method {method} {target}", _request(method, target, f"Content-Length: {len(body)}", body=body)


def _headers(chance: random.Random) -> tuple[str, bytes]:
    kind, lines = chance.choice(
        (
            ("many", [f"X-{n}: y" for n in range(5_000)]),
            ("long", ["X-Long: " + "y" * 200_000]),
            ("no colon", ["no colon at all", " folded", "\tfolded"]),
            ("cookies", ["Cookie: " + "; ".join(f"a{n}={n}" for n in range(2_000))]),
            ("chunked", ["Transfer-Encoding: chunked", "Content-Length: -5"]),
            ("range", ["Range: bytes=0-18446744073709551615", "If-None-Match: " + '"' * 400]),
            ("two hosts", ["Host: evil.example"]),
            ("expect", ["Expect: 100-continue", "Upgrade: websocket", "Connection: upgrade"]),
        )
    )
    return f"headers {kind}", _request("GET", chance.choice(PLACES), *lines)


def _host(chance: random.Random) -> tuple[str, bytes]:
    host = chance.choice(HOSTS)
    return f"host {host!r}", _request("GET", chance.choice(PLACES), host=host)


def _cross_site(chance: random.Random) -> tuple[str, bytes]:
    lines = ("Origin: https://evil.example", "Referer: https://evil.example/", "Sec-Fetch-Site: cross-site")
    target = chance.choice(PLACES)
    body = chance.choice(("", "a=1"))
    return f"cross-site POST {target}", _request("POST", target, *lines, f"Content-Length: {len(body)}", body=body)


def _cut(chance: random.Random) -> tuple[str, bytes]:
    whole = _request("GET", chance.choice(PLACES), "Accept: */*")
    at = chance.randrange(len(whole))
    return f"cut at {at}", whole[:at]


def _noise(chance: random.Random) -> tuple[str, bytes]:
    kind, noise = chance.choice(
        (
            ("bytes", chance.randbytes(400)),
            ("long line", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            ("version", b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n"),
            ("old", b"GET /runs.json\r\n\r\n"),
            ("tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(200)),
            ("feeds", b"GET /\rSet-Cookie:x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            ("nothing", b""),
        )
    )
    return f"noise {kind}", noise


# -- what must hold ----------------------------------------------------------------------------------------------------


def asked(server: Server, name: str, request: bytes) -> Asked:
    try:
        answer = server.send(request)
    except OSError as error:
        return Asked(name, survived=False, note=f"no answer: {error}")
    wrong = list(complaints(answer))
    if not server.is_alive:
        wrong.append("the server has ended")
    elif server.memory_mb > MEMORY_MB_MAX:
        wrong.append(f"{server.memory_mb} MB of memory")
    if said := server.err.read_text(encoding="utf-8", errors="replace"):
        wrong.append(f"it said {said.strip().splitlines()[-1][:120]}")
    return Asked(name, not wrong, "; ".join(wrong))


def complaints(answer: bytes) -> Iterator[str]:
    status = re.match(rb"HTTP/1\.\d (\d+)", answer)
    if status is not None and int(status[1]) not in STATUSES:
        yield f"status {status[1].decode()}"
    if status is not None and int(status[1]) == 500:
        yield f"status 500: {re.sub(rb'<[^>]*>', b' ', answer[-400:]).decode(errors='replace').strip()}"
    if MARK.encode() in answer or b"root:" in answer:
        yield "a file outside came through"
    if b"<img src=x" in answer and b"Content-Type: text/html" in answer:
        yield "a name became an element"
    if b"Traceback" in answer:
        yield "a traceback"


def beside_slow_clients(server: Server) -> Asked:
    """Clients that send a byte a second hold every connection that they get; an honest one is answered all the same."""
    over = threading.Event()

    def slow() -> None:
        try:
            with closing(socket.create_connection(("127.0.0.1", server.port), SLOW_S_MAX)) as client:
                client.sendall(b"GET / HTTP/1.1\r\nX: ")
                while not over.wait(1.0):
                    client.sendall(b"y")
        except OSError:
            pass  # the server has had enough of it

    threads = [threading.Thread(target=slow, daemon=True) for _ in range(SLOW_CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(2.0)
    try:
        answered = server.honest().startswith(b"HTTP/1.0 200")
    except OSError:
        answered = False
    over.set()
    for thread in threads:
        thread.join(SLOW_S_MAX)
    name = f"{SLOW_CLIENTS} slow clients"
    return Asked(name, answered, "" if answered else f"an honest client has no answer in {SLOW_S_MAX:.0f} s")


def inventory(root: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in root.rglob("*") if path.is_file()}


def attack(place: Path, *, requests: int, seconds: float, seed: int) -> Iterator[Asked]:
    root = make_runs(place)
    server = Server(root, place / "err")
    before = inventory(root)
    until = time.monotonic() + seconds
    try:
        for number in range(requests):
            if time.monotonic() > until:
                break
            name, request = drawn(random.Random(f"{seed}-{number}"))
            yield asked(server, f"{number}: {name}", request)
        yield beside_slow_clients(server)
        honest = server.honest()
        yield Asked("an honest request afterwards", honest.startswith(b"HTTP/1.0 200"), honest[:80].decode("latin-1"))
        changed = [name for name, digest in inventory(root).items() if before.get(name) != digest]
        yield Asked("the folder is as before", not changed, ", ".join(changed[:5]))
    finally:
        server.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seconds", type=float, default=math.inf, help="send no more requests after that time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="attack-served-") as place:
        for one in attack(Path(place), requests=options.requests, seconds=options.seconds, seed=options.seed):
            found.append(one)
            if not one.survived:
                print(f"FAILED {one.name}: {one.note}", flush=True)
    tried = Counter(one.name.split(": ")[-1].split(" ")[0] for one in found)
    lost = Counter(one.name.split(": ")[-1].split(" ")[0] for one in found if not one.survived)
    print("\n| request | tried | survived |\n|---|---|---|")
    for kind in sorted(tried):
        print(f"| {kind} | {tried[kind]} | {tried[kind] - lost[kind]} |")
    print(f"| all | {len(found)} | {len(found) - sum(lost.values())} |")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1), encoding="utf-8")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
