"""A local pool of fresh processes for trials: each bounded in time and memory, run again once when it was killed.

One server process has imported torch (``server.py``); each worker here holds at most one launched script that stands
where trials begin (``stage.py``), and gives it one spec after another. Finished outcomes are kept beside the incident
as they come, and read instead of being run again. Torch-free: this is the desk's side, and the incident itself is only
ever read.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.experiments.outcome_files import Finished
from steadytrain.experiments.specs import NO_TIME_LEFT, Outcome, Spec
from steadytrain.replay.failing_step import check_launch
from steadytrain.replay.moved_files import NOT_MOVED, Moved, moved_environment
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.trial_runs.socket_messages import Line

Tell = Callable[[str], None]

TRIAL_S_MAX = 300.0
"""Time of one trial, from the moment its process stands where it begins."""

LAUNCH_S_MAX = 900.0
"""Time for the script to come there: its imports, its set-up and its own steps."""

MEMORY_SHARE_MAX = 0.8
"""Of the machine's memory, what all trials that run at once may take together."""

LOOK_S = 0.2
KILLED_MAX = 2
"""A trial whose process was killed is begun so often."""

LOG_LINES_SHOWN = 2
WORKERS_MAX = 256
EARLY = frozenset({"one-worker", "seed-everything", "deterministic", "float32-positions"})
"""Changes that need a launch of their own: they act before the script builds its model and loaders."""


class Pool:
    """Runs specs of one incident. A context manager; between two calls of :meth:`run` its processes stay as they are.

    Args:
        source: a bundle or a run folder.
        workers: how many trials run at once.
        moved: ``OLD=NEW`` where the script's files lie elsewhere now.
        engine: ``local`` or ``ray``.
        trial_s_max: bound of one trial, in seconds.
        memory_bytes_max: bound of one trial; by default a share of the machine's memory.
        keep: whether finished outcomes are kept beside the incident, and read from there.

    Raises:
        UsageError: on construction: the script is gone, the engine is not there.
    """

    def __init__(
        self,
        source: Path,
        *,
        workers: int = 1,
        moved: str = NOT_MOVED,
        engine: str = "local",
        trial_s_max: float = TRIAL_S_MAX,
        memory_bytes_max: int | None = None,
        keep: bool = True,
    ) -> None:
        if not 1 <= workers <= WORKERS_MAX:
            raise UsageError(f"--workers {workers}: between 1 and {WORKERS_MAX}")
        if engine not in ("local", "ray"):
            raise UsageError(f"--engine {engine!r}: local or ray")
        self._source = source.absolute()
        recorded = open_bundle(source).environment if is_bundle(source) else open_run(source).description
        environment = moved_environment(recorded, Moved.parse(moved))
        check_launch(environment)
        self._finished = Finished(source, environment) if keep else None
        self._moved = moved
        self._tell: Tell = _nothing
        self._trial_s_max = trial_s_max
        self._memory_bytes_max = memory_bytes_max or _memory_share(workers)
        self._scratch = tempfile.TemporaryDirectory(prefix="steadytrain-trials-")
        self._lock = threading.Lock()
        self._waiting: list[tuple[Spec, int]] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._told_full = False
        self._workers = [_Worker(self, number) for number in range(workers)]
        self._ray: Any = None
        if engine == "ray":
            from steadytrain.trial_runs.ray_engine import RayEngine

            self._ray = RayEngine(RemotePool, self._source, moved, workers)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self, specs: Sequence[Spec], *, budget_s: float | None = None, tell: Tell | None = None
    ) -> Iterator[Outcome]:
        """Each outcome as it is there: those that were finished before first. The order is that of being finished.

        After ``budget_s`` seconds no trial is begun any more; ``tell`` gets a line about each.
        """
        self._tell = tell or _nothing
        until = None if budget_s is None else time.monotonic() + budget_s
        wanted = list(dict.fromkeys(specs))
        todo = []
        for spec in wanted:
            kept = self._finished.read(spec) if self._finished is not None else None
            if kept is None:
                todo.append(spec)
            else:
                self._tell(f"{spec.trial}: kept from before")
                yield kept
        if self._ray is not None:
            for outcome in self._ray.run(todo, until):
                self._keep(outcome)
                yield outcome
            return
        yield from self._run_here(todo, until)

    def close(self) -> None:
        """End every process. Idempotent."""
        for worker in self._workers:
            worker.close()
        server, self._server = self._server, None
        if server is not None:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.close()
            server.stdout.close()
            try:
                server.wait(LOOK_S * 25)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        if self._ray is not None:
            self._ray.close()
        self._scratch.cleanup()

    # -- what workers use ------------------------------------------------------------------------------------------

    def connect(self, key: str, spec: Spec, log: Path) -> Line:
        """A connection to a newly launched script that is on its way to where ``spec`` begins."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._socket_of_server()))
        line = Line(connection)
        line.send(
            {
                "source": str(self._source),
                "moved": self._moved,
                "begin": spec.begin,
                "lead": spec.lead,
                "early": json.loads(key)[2],
                "log": str(log),
            }
        )
        return line

    def next_spec(self, key: str | None, until: float | None) -> tuple[Spec, int] | None:
        """The next spec, one for the launched script that a worker holds before others; None where there is none."""
        with self._lock:
            if not self._waiting:
                return None
            if until is not None and time.monotonic() > until:
                return None
            fitting = next((at for at, (spec, _) in enumerate(self._waiting) if launch_key(spec) == key), 0)
            return self._waiting.pop(fitting)

    def again(self, spec: Spec, tries: int) -> None:
        with self._lock:
            self._waiting.append((spec, tries))

    @property
    def scratch(self) -> Path:
        return Path(self._scratch.name)

    @property
    def trial_s_max(self) -> float:
        return self._trial_s_max

    @property
    def memory_bytes_max(self) -> int:
        return self._memory_bytes_max

    # -- here ------------------------------------------------------------------------------------------------------

    def _run_here(self, todo: Sequence[Spec], until: float | None) -> Iterator[Outcome]:
        with self._lock:
            self._waiting = [(spec, 0) for spec in todo]
        done: queue.Queue[Outcome | BaseException] = queue.Queue()
        stop = threading.Event()
        threads = []
        for worker in self._workers[: max(1, len(todo))] if todo else []:
            thread = threading.Thread(target=worker.work, args=(done, until, stop), daemon=True)
            thread.start()
            threads.append(thread)
        left = {spec.key: spec for spec in todo}
        try:
            while left and (any(thread.is_alive() for thread in threads) or not done.empty()):
                try:
                    outcome = done.get(timeout=LOOK_S)
                except queue.Empty:
                    continue
                if isinstance(outcome, BaseException):
                    raise outcome
                left.pop(outcome.spec.key, None)
                self._keep(outcome)
                self._tell(_said(outcome))
                yield outcome
        finally:
            stop.set()
            with self._lock:
                self._waiting = []
            for thread in threads:
                thread.join(LOOK_S * 10)
        for spec in left.values():
            yield Outcome(spec, False, NO_TIME_LEFT)

    def _keep(self, outcome: Outcome) -> None:
        """Only what the trial itself says is kept: that a process was killed or the time was up is true of today."""
        if self._finished is None or not (outcome.ran or outcome.seconds > 0):
            return
        try:
            self._finished.write(outcome)
        except OSError as error:
            if not self._told_full:
                self._told_full = True
                self._tell(f"finished trials are not kept: {error.strerror or error}")

    def _socket_of_server(self) -> Path:
        with self._lock:
            path = self.scratch / "server"
            if self._server is None or self._server.poll() is not None:
                path.unlink(missing_ok=True)
                with (self.scratch / "server.txt").open("ab") as log:
                    self._server = subprocess.Popen(
                        [sys.executable, "-m", "steadytrain.trial_runs.server", str(path)],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        start_new_session=True,
                    )
                assert self._server.stdout is not None
                said = self._server.stdout.readline()
                if said != b"ready\n":
                    tail = _tail(self.scratch / "server.txt")
                    raise UsageError(f"the process that trials come from did not start: {tail}")
            return path


class RemotePool:
    """What runs on a machine of a Ray cluster: a pool of one process."""

    def __init__(self, source: str, moved: str) -> None:
        self._pool = Pool(Path(source), workers=1, moved=moved, keep=False)

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The outcome of one spec, as JSON."""
        (outcome,) = self._pool.run([Spec.from_json(spec)])
        return outcome.to_json()


class _Worker:
    """One launched script at most, and the thread that gives it specs."""

    def __init__(self, pool: Pool, number: int) -> None:
        self._pool = pool
        self._number = number
        self._launches = 0
        self._key: str | None = None
        self._line: Line | None = None
        self._group = 0
        self._shared = False
        self._log = Path(os.devnull)

    def work(self, done: queue.Queue[Outcome | BaseException], until: float | None, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                taken = self._pool.next_spec(self._key, until)
                if taken is None:
                    return
                spec, tries = taken
                outcome = self._one(spec, stop)
                if outcome is None and not stop.is_set():
                    if tries + 1 < KILLED_MAX:
                        self._pool.again(spec, tries + 1)
                        continue
                    tail = _tail(self._log)
                    why = f"its process was killed {KILLED_MAX} times{f'; it said: {tail}' if tail else ''}"
                    outcome = Outcome(spec, False, why)
                if outcome is not None:
                    done.put(outcome)
        except BaseException as error:
            done.put(error)

    def close(self) -> None:
        """End the launched script and all that came of it."""
        line, self._line, self._key = self._line, None, None
        if line is not None:
            if self._group:
                with contextlib.suppress(OSError):
                    os.killpg(self._group, signal.SIGKILL)
            line.close()
        self._group = 0

    def _one(self, spec: Spec, stop: threading.Event) -> Outcome | None:
        """Run one spec; None where its process was killed from outside."""
        if self._key != launch_key(spec) or self._line is None:
            self.close()
            why = self._launch(spec, stop)
            if why is not None:
                self.close()
                return Outcome(spec, False, why) if why else None
        assert self._line is not None
        out = self._pool.scratch / f"{spec.key}-{self._number}.json"
        out.unlink(missing_ok=True)
        try:
            self._line.send({"spec": spec.to_json(), "out": str(out)})
            why = self._wait(stop)
        except (EOFError, OSError):
            why = ""
        if why is not None or not self._shared:
            self.close()
        if out.is_file():
            return Outcome.from_json(json.loads(out.read_text(encoding="utf-8")))
        return Outcome(spec, False, why) if why else None

    def _launch(self, spec: Spec, stop: threading.Event) -> str | None:
        """Bring the script to where ``spec`` begins; returns why not, "" where its process was killed."""
        self._launches += 1
        self._log = self._pool.scratch / f"log-{self._number}-{self._launches}.txt"
        key = launch_key(spec)
        self._line = self._pool.connect(key, spec, self._log)
        until = time.monotonic() + LAUNCH_S_MAX
        try:
            while time.monotonic() < until and not stop.is_set():
                message = self._line.receive(LOOK_S)
                if message is None:
                    continue
                if "refused" in message:
                    return str(message["refused"])
                if "group" in message:
                    self._group = int(message["group"])
                if "staged" in message:
                    self._key, self._shared = key, bool(message["shared"])
                    return None
        except EOFError:
            return ""
        return f"the launched script took more than {LAUNCH_S_MAX:g} s to reach the step where trials begin"

    def _wait(self, stop: threading.Event) -> str | None:
        """Until the trial is over; returns why it was ended, "" where its process is gone, None where all is well."""
        assert self._line is not None
        until = time.monotonic() + self._pool.trial_s_max
        running = 0
        while not stop.is_set():
            message = self._line.receive(LOOK_S)
            if message is not None and "running" in message:
                running = int(message["running"])
            if message is not None and "refused" in message:
                return str(message["refused"])
            if message is not None and "ended" in message:
                return None if message["ended"] == 0 else ""
            if time.monotonic() > until:
                return f"it took more than {self._pool.trial_s_max:g} s"
            if running and _resident_bytes(running) > self._pool.memory_bytes_max:
                return f"it took more than {self._pool.memory_bytes_max / 1e9:.3g} GB of memory"
        return "it was broken off"


def launch_key(spec: Spec) -> str:
    """What two specs must have in common to be run from one launch of the script."""
    early = [change.to_json() for change in spec.changes if change.kind in EARLY]
    own = spec.key if spec.begin is None else ""  # from the script's own beginning nothing can be shared
    return json.dumps([spec.begin, spec.lead, early, own], sort_keys=True)


def with_repeats(spec: Spec, count: int) -> list[Spec]:
    """The spec ``count`` times, told apart."""
    return [replace(spec, repeat=repeat) for repeat in range(count)]


def _said(outcome: Outcome) -> str:
    name = outcome.spec.trial
    return f"{name}: {outcome.seconds:.1f} s" if outcome.ran else f"{name}: not run ({outcome.why_not})"


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return " | ".join(line.strip() for line in lines[-LOG_LINES_SHOWN:])


def _resident_bytes(process: int) -> int:
    """Memory of a process (Linux), 0 where it is not known."""
    try:
        with open(f"/proc/{process}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _memory_share(workers: int) -> int:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        total = 8 << 30
    return int(total * MEMORY_SHARE_MAX / workers)


def _nothing(text: str) -> None:
    """Nobody listens."""
