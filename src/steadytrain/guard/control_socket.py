"""The socket through which a live run takes commands: local, and only for the user who started the run.

A thread accepts one connection after the other, hands the command to the training thread, and waits for its answer.
The socket lies in a private folder of the system's temporary folder; ``control.json`` in the run folder has its path.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import socket
import stat
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.guard.commands import Command, parse_command
from steadytrain.storage.bundle import write_json
from steadytrain.storage.documents import as_json

CONTROL_FILE = "control.json"
SOCKET_NAME = "control"
ANSWER_WAIT_S = 120.0
"""How long a command waits for the end of a step."""

POLL_S = 1.0
MESSAGE_BYTES_MAX = 4096
ANSWER_BYTES_MAX = 1 << 20
PATH_BYTES_MAX = 100
"""The path of a Unix socket may have 107 bytes."""


@dataclass
class Asked:
    """A command that waits for a moment between two steps, and its answer."""

    command: Command
    answered: threading.Event = field(default_factory=threading.Event)
    done: bool = False
    text: str = ""

    def answer(self, text: str, *, done: bool = True) -> None:
        """``done``: False if it was refused."""
        self.text, self.done = text, done
        self.answered.set()


class ControlServer:
    """Serves one run. ``waiting`` is read by the training thread."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._socket: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        self._folder: Path | None = None
        self._file: Path | None = None
        self._over = False
        self._thread: threading.Thread | None = None

    def start(self, run_folder: Path) -> None:
        """Begin to listen.

        Raises:
            OSError: no socket can be made.
        """
        folder = Path(tempfile.mkdtemp(prefix="steadytrain-"))
        path = folder / SOCKET_NAME
        self._folder = folder
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if len(os.fsencode(path)) > PATH_BYTES_MAX:
            raise OSError(f"the path {path} is too long for a socket")
        listening.bind(str(path))
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
        listening.listen(4)
        listening.settimeout(POLL_S)
        self._socket, self._identity = listening, _identity(listening)
        self._file = run_folder / CONTROL_FILE
        write_json(self._file, {"schema": "steadytrain.control/1", "socket": str(path), "pid": os.getpid()})
        self._thread = threading.Thread(target=self._serve, name="steadytrain-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and take away what others see of it."""
        self._over = True
        while not self.waiting.empty():
            self.waiting.get().answer("the run is over", done=False)
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        self._wake()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._hang_up()

    def forget(self) -> None:
        """In a forked child: the socket is the parent's."""
        self._over = True
        self._hang_up()

    def _wake(self) -> None:
        """Let the thread see that it is over, and wait for it."""
        if self._folder is None or self._thread is None:
            return
        with unless_it_fails(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(POLL_S)
            connection.connect(str(self._folder / SOCKET_NAME))
        self._thread.join(2 * POLL_S)

    def _hang_up(self) -> None:
        listening, self._socket = self._socket, None
        if listening is None:
            return
        if _identity(listening) == self._identity:
            listening.close()
        else:
            listening.detach()  # the script has closed it, and the number may be that of a file of its own

    def _serve(self) -> None:
        while not self._over:
            listening = self._socket
            if listening is None or _identity(listening) != self._identity:
                return
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            except own(OSError):
                return
            with connection, unless_it_fails(OSError, ValueError):
                connection.settimeout(ANSWER_WAIT_S)
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        text = connection.recv(MESSAGE_BYTES_MAX).decode("utf-8", "replace").strip()
        if not text:
            return
        try:
            asked = Asked(parse_command(text))
        except UsageError as error:
            _send(connection, done=False, text=str(error))
            return
        self.waiting.put(asked)
        if not asked.answered.wait(ANSWER_WAIT_S - 5.0):
            asked.answer("no step has ended since; it is carried out at the end of the step in progress")
        _send(connection, done=asked.done, text=asked.text)


def ask(run_folder: Path, text: str) -> tuple[bool, str]:
    """Send the command ``text`` to a live run; returns whether it was carried out, and what it says.

    Raises:
        UsageError: the run is not live on this machine, or belongs to somebody else.
    """
    file = run_folder / CONTROL_FILE
    not_live = UsageError(f"{run_folder} takes no commands: it is over, was killed, or runs on another machine")
    try:
        data = read_json(file, bytes_max=MESSAGE_BYTES_MAX)
        path = Path(data["socket"])
        found = path.lstat()
    except own(OSError, ValueError, KeyError, TypeError):
        raise not_live from None
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise UsageError(f"{path}: no socket of yours; only the user who started a run can command it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_WAIT_S)
        try:
            connection.connect(str(path))
            connection.sendall(text.encode() + b"\n")
            answer = b""
            until = time.monotonic() + ANSWER_WAIT_S
            while (part := connection.recv(MESSAGE_BYTES_MAX)) and len(answer) <= ANSWER_BYTES_MAX:
                answer += part
                connection.settimeout(max(until - time.monotonic(), 1e-3))
            said = json.loads(answer)
            return bool(said["done"]), str(said["text"])
        except TimeoutError:
            raise UsageError(f"{run_folder}: no answer within {ANSWER_WAIT_S:.0f} s") from None
        except own(OSError, ValueError, KeyError, TypeError, RecursionError):
            raise not_live from None


def _send(connection: socket.socket, *, done: bool, text: str) -> None:
    connection.sendall(as_json({"done": done, "text": text}).encode())


def _identity(one: socket.socket) -> tuple[int, int] | None:
    try:
        found = os.fstat(one.fileno())
    except own(OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
