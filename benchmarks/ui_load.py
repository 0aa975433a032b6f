"""What `steadytrain ui` costs: a run of a million steps opened and zoomed, and 50 open pages beside a run that trains.

``make bench-ui`` prints a table. The pages are clients that ask what an open page asks, as often as it asks. The
training computes for some milliseconds and records 100 steps a second; it runs in turn without and with the pages. The
clients have the lowest priority: the browsers of a training machine are elsewhere. The load average is printed: what a
request waits for on a full machine is the machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from top_cost import RATE, STEPS, TENSORS, Run

from steadytrain.storage.run_folder import RUN_FILE

PAGES = 50
ROUNDS = 3
ROUND_S = 20.0
PAGE_EVERY_S = 1.5
WIDTHS = (1100, 800, 360)
ZOOMS = 100
WORK = 200
"""Rows of the matrices that a step multiplies: some milliseconds on one core."""

ANSWER_WAIT_S = 60.0


class Client:
    """One page: it keeps the seconds of each of its requests."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.seconds: list[float] = []

    def get(self, target: str) -> Any:
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_WAIT_S)
        try:
            connection.request("GET", target)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        self.seconds.append(time.perf_counter() - began)
        if answer.status != 200:
            raise SystemExit(f"ui-load: {target}: status {answer.status}: {body[:200]!r}")
        return json.loads(body)

    def look(self, run: str, width: int, span: tuple[int, int] | None = None) -> None:
        """What a page asks when it is drawn."""
        part = f"&first={span[0]}&last={span[1]}" if span else ""
        self.get(f"/run/{run}/state.json")
        for signal in ("loss", "gradient_norm"):
            self.get(f"/run/{run}/curve.json?signal={signal}&columns={width}{part}")


@contextmanager
def serving(runs: Path) -> Iterator[tuple[int, int]]:
    words = [sys.executable, "-m", "steadytrain", "ui", str(runs), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline().split("/")[2].split(":")[1]), server.pid
        finally:
            server.terminate()


def processor_s(pid: int) -> float:
    """Seconds of a processor that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    """Memory of a process at the most."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def pages(port: int, seconds: float) -> None:
    """50 pages on one live run, every fifth of them zoomed. Prints the seconds of all requests."""
    os.nice(19)
    clients = [Client(port) for _ in range(PAGES)]
    until = time.monotonic() + seconds

    def read(index: int) -> None:
        time.sleep(PAGE_EVERY_S * index / PAGES)
        while time.monotonic() < until:
            newest = clients[index].get("/run/live/state.json")["step"] or 1
            span = (max(1, newest - 400 - index), newest) if index % 5 == 0 else None
            clients[index].look("live", WIDTHS[index % len(WIDTHS)], span)
            time.sleep(PAGE_EVERY_S)

    threads = [threading.Thread(target=read, args=(index,)) for index in range(PAGES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps([second for client in clients for second in client.seconds]))


def train(path: Path, seconds: float) -> None:
    """Compute and record up to 100 steps a second. Prints the milliseconds of each step without its pause."""
    run, step, spent = Run(path), 0, []
    weights = np.random.default_rng(0).random((WORK, WORK), np.float32)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        step += 1
        before = time.perf_counter()
        for _ in range(10):
            weights = np.tanh(weights @ weights)
        run.write(step, time.time(), norms=step % 10 == 0)
        spent.append(1000 * (time.perf_counter() - before))
        time.sleep(max(0.0, began + step / RATE - time.monotonic()))
    print(json.dumps({"ms": spent, "rate": step / (time.monotonic() - began)}))


def own(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True)


def answered(process: subprocess.Popen[str]) -> Any:
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit("ui-load: a process of the measurement failed")
    return json.loads(out)


def wait_for(path: Path) -> None:
    until = time.monotonic() + ANSWER_WAIT_S
    while not path.exists():
        if time.monotonic() > until:
            raise SystemExit(f"ui-load: {path} did not come")
        time.sleep(0.01)


def opening(folder: Path, steps: int) -> Iterator[tuple[str, str]]:
    run = Run(folder / "long")
    for step in range(1, steps + 1):
        run.write(step, step * 0.01, norms=step > steps - 100)
    with serving(folder) as (port, pid):
        first, zoomed, random = Client(port), Client(port), np.random.default_rng(0)
        first.look("long", WIDTHS[0])
        for _ in range(ZOOMS):
            middle, width = random.integers(1, steps), 10 ** random.uniform(2, 6)
            span = (int(max(1, middle - width)), int(min(steps, middle + width)))
            zoomed.get(f"/run/long/curve.json?signal=loss&columns={WIDTHS[0]}&first={span[0]}&last={span[1]}")
        peak = memory_mib(pid)
    yield (
        f"first look at {steps:,} steps of {TENSORS} tensors: state and curves",
        f"{sum(first.seconds):.2f} s, {peak:.0f} MiB",
    )
    half, late = np.percentile(zoomed.seconds, [50, 95])
    yield (
        f"{ZOOMS} zooms into it, 100 to {steps:,} steps wide",
        f"median {1000 * half:.0f} ms, 95 % {1000 * late:.0f} ms",
    )


def load(folder: Path, rounds: int, seconds: float) -> Iterator[tuple[str, str]]:
    asked: list[float] = []
    used: list[float] = []
    trained: dict[str, list[dict[str, Any]]] = {"no page": [], f"{PAGES} pages": []}
    for number in range(2 * rounds):
        what = list(trained)[(number + number // 2) % 2]  # without, with, with, without, ...
        runs = folder / f"load-{number}"
        runs.mkdir()
        words = ("--train", str(runs / "live"), "--seconds", str(seconds))
        if what == "no page":
            trained[what].append(answered(own(*words)))
            continue
        with serving(runs) as (port, pid):
            training = own(*words)
            wait_for(runs / "live" / RUN_FILE)
            asked += answered(own("--pages", str(port), "--seconds", str(seconds)))
            used.append(processor_s(pid) / seconds)
        trained[what].append(answered(training))
    half, late, last = np.percentile(asked, [50, 95, 100])
    rate = len(asked) / rounds / seconds
    yield (
        f"{PAGES} pages on a live run: {len(asked):,} requests, {rate:.0f} a second",
        f"median {1000 * half:.0f} ms, 95 % {1000 * late:.0f} ms, longest {1000 * last:.0f} ms",
    )
    yield "the server meanwhile", f"{100 * sum(used) / rounds:.0f} % of a core"
    for what, found in trained.items():
        steps = [ms for one in found for ms in one["ms"]]
        half, late = np.percentile(steps, [50, 95])
        rate = sum(one["rate"] for one in found) / len(found)
        yield f"training, {what}", f"{rate:.1f} steps/s; a step {half:.2f} ms, 95 % {late:.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", type=int)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--seconds", type=float, default=ROUND_S)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    if options.pages is not None:
        pages(options.pages, options.seconds)
    elif options.train is not None:
        train(options.train, options.seconds)
    else:
        machine, busy = platform.processor() or platform.machine(), os.getloadavg()[1]
        print(f"{machine}, {os.cpu_count()} cores, load average {busy:.1f}, {datetime.now(timezone.utc):%Y-%m-%d}")
        print("\n| what | measured |\n|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            found = (
                opening(Path(folder) / "opening", options.steps),
                load(Path(folder), options.rounds, options.seconds),
            )
            for what, measured in chain(*found):
                print(f"| {what} | {measured} |", flush=True)


if __name__ == "__main__":
    main()
