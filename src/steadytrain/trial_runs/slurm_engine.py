"""Runs specs in job steps of SLURM: one ``srun`` for each worker, with a pool of one process on the node that it gets.

``srun`` passes standard input and output on: a spec goes in as one line of JSON, and its outcome comes out
(``remote_worker.py``). Each trial runs as it does locally (``pool.py``), with the same bounds. The nodes need the same
Python environment and the same paths, because they read the incident and the script. Options such as the partition come
from the environment, as ``srun`` itself reads them (``SLURM_PARTITION``, ``SLURM_ACCOUNT``, ``SRUN_CPUS_PER_TASK``).
"""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from steadytrain.core.errors import UsageError
from steadytrain.core.work_time import work_time
from steadytrain.experiments.specs import NO_TIME_LEFT, Outcome, Spec
from steadytrain.replay.child_processes import about_to_launch

TRIES_MAX = 2
LOOK_S, CLOSE_S_MAX = 0.5, 10.0
SAID_CHARACTERS_MAX = 300


class SlurmEngine:
    """Job steps of the allocation that this process is in, or jobs of their own outside of one.

    Raises:
        UsageError: on construction, if there is no ``srun``.
    """

    def __init__(self, source: Path, moved: str, workers: int) -> None:
        srun = shutil.which("srun")
        if srun is None:
            raise UsageError("--engine slurm needs the command srun, which is not on the PATH")
        about_to_launch()
        step = ["--exact"] if "SLURM_JOB_ID" in os.environ else []
        command = [srun, "--ntasks=1", "--nodes=1", "--quiet", "--unbuffered", *step, sys.executable]
        self._command = [*command, "-m", "steadytrain.trial_runs.remote_worker", str(source), moved]
        self._workers = [_JobStep(self._command) for _ in range(workers)]
        self._stop = threading.Event()

    def run(self, specs: Sequence[Spec], until: float | None) -> Iterator[Outcome]:
        """Yields each outcome when it is available. No trial starts after ``until`` (``work_time``)."""
        waiting, done = deque(specs), queue.Queue[Outcome]()
        used = self._workers[: max(1, len(waiting))]
        threads = [threading.Thread(target=self._work, args=(one, waiting, done, until), daemon=True) for one in used]
        for thread in threads:
            thread.start()
        for _ in specs:
            yield done.get()

    def close(self) -> None:
        """Ends the job steps. Idempotent."""
        self._stop.set()
        for worker in self._workers:
            worker.close()

    def _work(self, worker: _JobStep, waiting: deque[Spec], done: queue.Queue[Outcome], until: float | None) -> None:
        while True:
            try:
                spec = waiting.popleft()
            except IndexError:
                return
            try:
                done.put(self._outcome(worker, spec, until))
            except Exception as error:
                done.put(Outcome(spec, False, f"SLURM lost it: {type(error).__name__}: {error}"))

    def _outcome(self, worker: _JobStep, spec: Spec, until: float | None) -> Outcome:
        said = ""
        for _ in range(TRIES_MAX):
            if until is not None and work_time() > until:
                return Outcome(spec, False, NO_TIME_LEFT)
            line = worker.ask(spec, self._stop, until)
            if line is not None:
                return Outcome.from_json(json.loads(line))
            if not worker.was_ready and until is not None and work_time() > until:
                return Outcome(spec, False, NO_TIME_LEFT)
            said = worker.said()
            worker.close()
            if self._stop.is_set():
                break
        return Outcome(spec, False, f"SLURM lost it: {said or 'srun ended without a word'}")


class _JobStep:
    """One ``srun`` and the worker that it runs; started when it is asked first, and again after it has ended."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._text = b""
        self.was_ready = False

    def ask(self, spec: Spec, stop: threading.Event, until: float | None) -> str | None:
        """The answer to ``spec``; None if the worker has ended, or has not begun in time."""
        process = self._started()
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.write(json.dumps(spec.to_json(), allow_nan=False).encode() + b"\n")
            process.stdin.flush()
        while not stop.is_set():
            line = self._line(process)
            if line == "ready":
                self.was_ready = True
            elif line is not None:
                return line or None
            elif not self.was_ready and until is not None and work_time() > until:
                return None  # the job still waits for its turn
        return None

    def said(self) -> str:
        """The end of what it wrote to standard error."""
        if self._errors is None:
            return ""
        with suppress(OSError, ValueError):
            self._errors.seek(0)
            text = self._errors.read().decode(errors="replace").strip().splitlines()
            return text[-1][:SAID_CHARACTERS_MAX] if text else ""
        return ""

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            try:
                process.wait(CLOSE_S_MAX if self.was_ready else 0)
            except subprocess.TimeoutExpired:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(CLOSE_S_MAX)
        if self._errors is not None:
            self._errors.close()
            self._errors = None
        self._text, self.was_ready = b"", False

    def _started(self) -> subprocess.Popen[Any]:
        if self._process is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=self._errors)
        return self._process

    def _line(self, process: subprocess.Popen[Any]) -> str | None:
        """The next line without its end; "" if the worker has ended, None if there is none yet."""
        assert process.stdout is not None
        while b"\n" not in self._text:
            if not select.select([process.stdout], [], [], LOOK_S)[0]:
                return None
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                return ""
            self._text += part
        line, _, self._text = self._text.partition(b"\n")
        return line.decode(errors="replace")
