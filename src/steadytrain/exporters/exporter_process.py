"""Run an exporter in its own process: the tool's library never enters the training process.

The parent writes one JSON document per line into a pipe. The child reads them and drives the real exporter; errors
return on another pipe. The child runs at low priority, is not watched itself, and is outside the terminal's process
group: an interrupt ends the script, and the child then closes its run properly. However the parent ends, the child
finishes its run and exits within a time limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from queue import Queue
from typing import IO, Any, final

from steadytrain.capture.hooks.launch import ATTACH_VARIABLE
from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Symptom
from steadytrain.exporters.exporter import Exporter, ExporterError, ExporterGoneError, Histogram, Row, Run, load_tool
from steadytrain.exporters.exporter_queue import in_a_line
from steadytrain.exporters.run_places import keep_place
from steadytrain.storage.documents import COMPACT, as_json
from steadytrain.storage.own_file import FileId, abandon, file_id
from steadytrain.storage.redaction import redact_text
from steadytrain.storage.run_folder import RUN_FILE

FINISH_S_MAX = 60.0
"""Time limit for a child to finish its run after the script's end. Nothing waits that long for it."""

ALERTS, EARLY_ALERTS = "alerts", "early-alerts"
"""The exporters that are no tools of ``--to``; the second alerts only of a script that is killed (``early_alert``)."""

MESSAGES_WAITING_MAX = 8192
POLL_S = 0.02
NICENESS = 10
ANSWER_BYTES_MAX = 1 << 16

_OUR_FOLDER = str(Path(__file__).parents[2])
_DEFAULTS: Mapping[str, str] = {
    "PYTHONSAFEPATH": "1",  # a file wandb.py beside the script must not shadow the library
    "MLFLOW_DISABLE_TELEMETRY": "true",  # no network traffic unless requested
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # an unreachable server fails within seconds, not minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Defaults for the child's environment. The user's settings take precedence."""

_NOT_INHERITED = (ATTACH_VARIABLE, "WANDB_SERVICE")
"""A running W&B service belongs to the script; our run must not join it."""


@final
class ChildExporter(Exporter):
    """Stands in for the exporter of ``tool`` in another process. Its library's output goes to ``<run>/<tool>.log``.

    Args:
        tool: the name of an exporter, or ``alerts``.
        tell: prints one line of the other process for the user.
        settings: for alerts: what they are and where they go. They may hold secrets, and go through the pipe alone.
    """

    def __init__(self, tool: str, tell: Callable[[str], None], settings: Mapping[str, Any] | None = None) -> None:
        self._tool = tool
        self._settings = settings
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: dict[int, FileId | None] = {}
        self._answers = b""
        self._all_said = False
        self._nobody_waits = threading.Event()

    def open(self, run: Run) -> None:
        self._log = Path(run.folder) / f"{self._tool}.log"
        # Where the script failed before its first step there is no folder, or it is to stay empty.
        if self._tool == EARLY_ALERTS or not self._log.parent.is_dir():
            descriptor, name = tempfile.mkstemp(prefix=f"steadytrain-{self._tool}-", suffix=".log")
            os.close(descriptor)
            self._log = Path(name)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, self._tool, str(FINISH_S_MAX)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env=child_environment(),
                start_new_session=True,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._pipes = {number: file_id(number) for number in map(_number, (self._process.stdin, self._process.stdout))}
        try:
            if self._settings is not None:
                self._write(json.dumps({"do": "settings", "settings": self._settings}))  # a password is used as it is
            self._say("open", run=vars(run))
        except ExporterError:
            self._hang_up()
            raise

    def scalars(self, row: Row) -> None:
        self._say("scalars", row=vars(row))  # not asdict: there may be hundreds per second

    def histogram(self, histogram: Histogram) -> None:
        self._say("histogram", histogram=vars(histogram))

    def symptom(self, symptom: Symptom) -> None:
        self._say("symptom", symptom=symptom.to_json())

    def incident(self, path: Path, incident: Incident) -> None:
        self._say("incident", path=str(path), incident=incident.to_json())

    def action(self, action: Action) -> None:
        self._say("action", action=action.to_json())

    def failed(self, why: str) -> None:
        self._say("failed", why=why)

    def flush(self) -> None:
        self._say("flush")
        self._hear()

    def idle(self) -> None:
        self._hear()

    def close(self, ended: str) -> None:
        """Send the end and wait for the child to exit. After :meth:`let_go` the child finishes alone."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            self._say("close", ended=ended)
            self._drop(process.stdin)
            self._all_said = True
            while process.poll() is None and not self._nobody_waits.wait(POLL_S):
                pass
            self._hear()
            if process.returncode:
                raise ExporterGoneError(f"its process ended with status {process.returncode}; see {self._log}")
        finally:
            self._hang_up()

    def dismiss(self) -> None:
        """Let the child end without a word. It is not waited for."""
        with contextlib.suppress(ExporterError):
            self._say("dismiss")
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                self._drop(pipe)
            _left.append(self._process)
            with contextlib.suppress(OSError):
                self._log.unlink()

    def let_go(self) -> None:
        """A child that received everything may finish alone. A child that does not read its pipe is killed."""
        self._nobody_waits.set()
        if self._process is not None and not self._all_said:
            self._process.kill()

    def forget(self) -> None:
        """Close the pipes here, or the child would wait for us after the parent has ended."""
        for pipe in (self._process.stdin, self._process.stdout) if self._process else ():
            self._drop(pipe)  # unbuffered: this writes nothing

    def _hang_up(self) -> None:
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            self._drop(pipe)
        if self._process.poll() is None:
            _left.append(self._process)
            if self._all_said:  # otherwise it was killed
                what = "alerts are" if self._tool == ALERTS else f"what is left for {self._tool} is"
                self._tell(f"note: {what} still being sent; what fails is in {self._log}")
        elif not self._log.stat().st_size:
            self._log.unlink()

    def _is_ours(self, pipe: IO[bytes] | None) -> bool:
        """Whether the script left the descriptor of this open pipe to us."""
        return pipe is not None and not pipe.closed and file_id(pipe.fileno()) == self._pipes.get(pipe.fileno())

    def _drop(self, pipe: IO[bytes] | None) -> None:
        """Close a pipe; one whose number now belongs to a file of the script is left open."""
        if self._is_ours(pipe):
            assert pipe is not None
            pipe.close()
        elif pipe is not None and not pipe.closed:
            abandon(pipe)

    def _say(self, what: str, **arguments: Any) -> None:
        self._write(as_json({"do": what, **arguments}, separators=COMPACT))

    def _write(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        data = memoryview(f"{line}\n".encode("utf-8", "backslashreplace"))
        if not self._process.stdin.closed and not self._is_ours(self._process.stdin):
            raise ExporterGoneError("the script closed the pipe to its process")
        try:
            while data:
                data = data[self._process.stdin.write(data) :]
        except (BrokenPipeError, ValueError):
            self._hear()
            raise ExporterGoneError(f"its process is gone; see {self._log}") from None

    def _hear(self) -> None:
        """Print what the child has to tell, and raise its first error since the last call."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not self._process.stdout.closed and not self._is_ours(self._process.stdout):
            return
        self._answers += self._process.stdout.read(ANSWER_BYTES_MAX) or b""
        *lines, self._answers = self._answers.split(b"\n")
        answers = [json.loads(line) for line in lines]
        for answer in answers:
            if "tell" in answer:
                self._tell(answer["tell"])
        for answer in answers:
            if "error" in answer:
                raise (ExporterGoneError if answer["gone"] else ExporterError)(answer["error"])


def _number(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return pipe.fileno()


_left: list[subprocess.Popen[bytes]] = []
"""Children that finish alone. Keeping them avoids ResourceWarnings."""


def child_environment() -> dict[str, str]:
    """The environment of a process of ours that imports the library of a tool."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    path = [entry for entry in kept.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {**_DEFAULTS, **kept, "PYTHONPATH": os.pathsep.join([*path, _OUR_FOLDER])}


def environment_of_script() -> dict[str, str]:
    """In such a process: the environment without what :func:`child_environment` added."""
    kept = {name: value for name, value in os.environ.items() if _DEFAULTS.get(name) != value}
    path = kept.pop("PYTHONPATH", "").split(os.pathsep)
    path = [entry for entry in path if entry and entry != _OUR_FOLDER]
    return {**kept, **({"PYTHONPATH": os.pathsep.join(path)} if path else {})}


# In the child.


def main(tool: str, finish_s_max: float) -> int:
    """Drive the exporter of ``tool`` with the messages from stdin until they end."""
    os.nice(NICENESS)
    threading.Thread(target=_end_after_the_parent, args=(finish_s_max,), daemon=True).start()
    answers = os.dup(1)
    os.dup2(2, 1)  # a library's output goes to the log

    def attempt(do: Callable[[], None], *, gone: bool = False) -> bool:
        try:
            do()
        except Exception as error:
            print(redact_text(f"{type(error).__name__}: {error}"), file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):  # the parent may be gone
                os.write(answers, as_json({"error": in_a_line(error), "gone": gone}).encode() + b"\n")
            return False
        return True

    def tell(line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(answers, as_json({"tell": line}).encode() + b"\n")

    exporter: Exporter | None = None
    folder = Path()
    settings: dict[str, Any] = {}

    def begin(run: Run) -> None:
        nonlocal exporter
        nonlocal folder
        made = _alerts(settings, tell) if tool in (ALERTS, EARLY_ALERTS) else load_tool(tool).begin()
        made.open(run)
        exporter, folder = made, Path(run.folder)
        if tool != EARLY_ALERTS:
            keep_place(run, made)

    messages: Queue[dict[str, Any]] = Queue(MESSAGES_WAITING_MAX)
    threading.Thread(target=_listen, args=(messages,), daemon=True).start()
    while True:
        message = messages.get()
        if message["do"] == "dismiss" or (tool == EARLY_ALERTS and (folder / RUN_FILE).is_file()):
            return 0  # the run alerts by itself
        if message["do"] == "close":
            ended = message["ended"]
            break
        if message["do"] == "settings":
            settings = message["settings"]
        elif exporter is None:
            if not attempt(partial(begin, Run(**message["run"])), gone=True):
                return 1
        else:
            attempt(partial(_obey, exporter, message))
    if exporter is not None:
        attempt(partial(exporter.close, ended))
    if tool == EARLY_ALERTS:
        _remove_empty_log()
    return 0


def _remove_empty_log() -> None:
    """The parent is gone, and cannot do it."""
    with contextlib.suppress(OSError):
        if not os.fstat(2).st_size:
            os.unlink(os.readlink("/proc/self/fd/2"))


def _alerts(settings: dict[str, Any], tell: Callable[[str], None]) -> Exporter:
    from steadytrain.exporters.alerts.alert_exporter import AlertExporter
    from steadytrain.exporters.alerts.settings import AlertSettings

    return AlertExporter(AlertSettings.from_json(settings), tell, environment_of_script())


def _end_after_the_parent(finish_s_max: float) -> None:
    """Exit at most ``finish_s_max`` after the parent closed its pipe, because a library may hang."""
    pipe = select.poll()
    pipe.register(0, 0)  # reports only that it is closed
    pipe.poll()
    time.sleep(finish_s_max)
    os._exit(1)


def _listen(messages: Queue[dict[str, Any]]) -> None:
    """Read messages while a library is still importing, so that a short run can send everything and end."""
    # Not sys.stdin: Python closes that at exit, and aborts if a thread still waits in it.
    said = open(0, "rb", closefd=False)  # noqa: SIM115  no `with`, as the thread may never come to its end
    for line in said:
        if not line.endswith(b"\n"):
            break  # the parent died in the middle of a line
        messages.put(json.loads(line))
    messages.put({"do": "close", "ended": "lost"})


def _obey(exporter: Exporter, message: Mapping[str, Any]) -> None:
    match message["do"]:
        case "scalars":
            exporter.scalars(Row(**message["row"]))
        case "histogram":
            exporter.histogram(Histogram(**message["histogram"]))
        case "symptom":
            exporter.symptom(Symptom.from_json(message["symptom"]))
        case "action":
            exporter.action(Action.from_json(message["action"]))
        case "incident":
            exporter.incident(Path(message["path"]), Incident.from_json(message["incident"]))
        case "failed":
            exporter.failed(message["why"])
        case "flush":
            exporter.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
