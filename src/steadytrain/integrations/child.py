"""An exporter in a process of its own: nothing of the tool's library ever enters the training process.

The parent writes one JSON document a line into a pipe, the child reads them and drives the real exporter; what went
wrong there comes back on another pipe. The child runs at low priority, is not watched itself, and stands outside the
terminal's group of processes: an interrupt ends the script, and then the child ends its run in order. When the parent
is gone, however it went, the child finishes its run and ends, within a bound.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, final

from steadytrain.capture.launch import ATTACH_VARIABLE
from steadytrain.integrations.exporter import (
    Exporter,
    ExporterError,
    ExporterGoneError,
    Histogram,
    Row,
    Run,
)
from steadytrain.integrations.outlet import first_line
from steadytrain.model import Incident, Symptom

FINISH_S_MAX = 60.0
"""What a child may take to finish its run after the script's end; nobody waits for it so long."""

POLL_S = 0.02
NICENESS = 10
ANSWER_BYTES_MAX = 1 << 16

_OUR_FOLDER = str(Path(__file__).parents[2])
_DEFAULTS: Mapping[str, str] = {
    "PYTHONSAFEPATH": "1",  # a file wandb.py beside the script is not the library
    "MLFLOW_DISABLE_TELEMETRY": "true",  # no network unless asked
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # a server that is away is told within seconds, not minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""For the child alone, and only where the person has not said otherwise."""

_NOT_INHERITED = (ATTACH_VARIABLE, "WANDB_SERVICE")
"""A service of W&B that runs is the script's own, and our run is not to live in it."""


@final
class ChildExporter(Exporter):
    """Stands for the exporter of ``tool`` in another process. Its own file of messages is ``<run>/<tool>.log``."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = b""
        self._all_said = False
        self._nobody_waits = threading.Event()

    def open(self, run: Run) -> None:
        self._log = Path(run.folder) / f"{self._tool}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, self._tool],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env=_environment(),
                start_new_session=True,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._say("open", run=asdict(run))

    def scalars(self, row: Row) -> None:
        self._say("scalars", row=asdict(row))

    def histogram(self, histogram: Histogram) -> None:
        self._say("histogram", histogram=asdict(histogram))

    def symptom(self, symptom: Symptom) -> None:
        self._say("symptom", symptom=symptom.to_json())

    def incident(self, path: Path, incident: Incident) -> None:
        self._say("incident", path=str(path), incident=incident.to_json())

    def flush(self) -> None:
        self._say("flush")
        self._hear()

    def close(self, ended: str) -> None:
        """Say so and wait for the child to end, until :meth:`let_go`: then it ends by itself."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            self._say("close", ended=ended)
            process.stdin.close()
            self._all_said = True
            while process.poll() is None and not self._nobody_waits.wait(POLL_S):
                pass
            self._hear()
            if process.returncode:
                raise ExporterGoneError(f"its process ended with status {process.returncode}; see {self._log}")
        finally:
            process.stdin.close()
            process.stdout.close()
            if process.poll() is None:
                _left.append(process)

    def let_go(self) -> None:
        """A child that was told everything may finish alone; one that does not even listen is killed."""
        self._nobody_waits.set()
        if self._process is not None and not self._all_said:
            self._process.kill()

    def forget(self) -> None:
        """The pipe must not stay open here, or the child would wait for us when the parent has long gone."""
        for pipe in (self._process.stdin, self._process.stdout) if self._process else ():
            if pipe is not None:
                pipe.close()  # unbuffered: nothing is written by it

    def _say(self, what: str, **arguments: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        text = json.dumps({"do": what, **arguments}, separators=(",", ":")) + "\n"
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            while data:
                data = data[self._process.stdin.write(data) :]
        except (BrokenPipeError, ValueError):
            self._hear()
            raise ExporterGoneError(f"its process is gone; see {self._log}") from None

    def _hear(self) -> None:
        """Raise what went wrong there since the last time."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._answers += self._process.stdout.read(ANSWER_BYTES_MAX) or b""
        *lines, self._answers = self._answers.split(b"\n")
        if lines:
            answer = json.loads(lines[0])
            raise (ExporterGoneError if answer["gone"] else ExporterError)(answer["error"])


_left: list[subprocess.Popen[bytes]] = []
"""Children that finish alone; kept so that nobody warns of them."""


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    path = [entry for entry in kept.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {**_DEFAULTS, **kept, "PYTHONPATH": os.pathsep.join([*path, _OUR_FOLDER])}


# In the child.


def main(tool: str) -> int:
    """Drive the exporter of ``tool`` by what comes on stdin, to its end."""
    os.nice(NICENESS)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints goes to the log

    def attempt(do: Callable[[], None], *, gone: bool = False) -> bool:
        try:
            do()
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):  # the parent may be gone
                os.write(answers, json.dumps({"error": first_line(error), "gone": gone}).encode() + b"\n")
            return False
        return True

    exporter: Exporter | None = None

    def begin(run: Run) -> None:
        nonlocal exporter
        exporter = importlib.import_module(f"steadytrain.integrations.{tool}").begin()
        exporter.open(run)

    ended = "lost"
    for message in _messages():
        if message["do"] == "close":
            ended = message["ended"]
            break
        if exporter is None:
            if not attempt(partial(begin, Run(**message["run"])), gone=True):
                return 1
        else:
            attempt(partial(_obey, exporter, message))
    deadline = threading.Timer(FINISH_S_MAX, os._exit, (1,))
    deadline.daemon = True
    deadline.start()
    if exporter is not None:
        attempt(partial(exporter.close, ended))
    return 0


def _messages() -> Iterator[dict[str, Any]]:
    for line in sys.stdin.buffer:
        if not line.endswith(b"\n"):
            return  # the parent died in the middle of a word
        yield json.loads(line)


def _obey(exporter: Exporter, message: Mapping[str, Any]) -> None:
    match message["do"]:
        case "scalars":
            exporter.scalars(Row(**message["row"]))
        case "histogram":
            exporter.histogram(Histogram(**message["histogram"]))
        case "symptom":
            exporter.symptom(Symptom.from_json(message["symptom"]))
        case "incident":
            exporter.incident(Path(message["path"]), Incident.from_json(message["incident"]))
        case "flush":
            exporter.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
