"""Forks a process for each request of a client; in the parent it serves on, in the child it gives back the job."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.machinery
import os
import pkgutil
import random
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import numpy.ctypeslib
import numpy.ma  # a first median imports it
import torch
import torch._dynamo  # a first optimizer imports it

import steadytrain
import warm
from steadytrain.capture.hooks.fail_open import RAISE_VARIABLE, Guard
from steadytrain.capture.hooks.patches import keep_compiler_out
from steadytrain.capture.incident import environment
from steadytrain.exporters.exporter import known_tools

FILES_MAX = 64
READ_AT_IMPORT = ("PYTHON", "TORCH", "PYTORCH", "OMP_", "MKL_", "OPENBLAS_", "ATEN_", "LD_")
"""Variables that begin so are read by Python, torch or what they load: a process with others has to begin anew."""
READ_LATER = ("PYTHONWARNINGS", "TORCHINDUCTOR_CACHE_DIR", "PYTORCH_NVML_BASED_CUDA_CHECK")
"""Variables of this kind that are read where they are used; libraries set them in the process that imports them."""
NOT_IMPORTED = ("__main__", "integrations", "pytest_plugin", "start", "testing", "tools")
"""Of our own: what is run, what is imported once another library is, and what only tests import."""


@dataclass
class Job:
    """What a client asks for; ``files`` has the numbers of its open files, and theirs here."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    files: dict[int, int]
    interpreter: str
    cores: set[int]


def serve(path: str, client: str) -> Job:
    """Serve until standard input ends; in a forked process, return what it is to become."""
    own = _read_at_import(dict(os.environ))
    _import_all_of(steadytrain)
    _do_once()
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    chosen = selectors.DefaultSelector()
    for source in (listener, woken, sys.stdin):
        chosen.register(source, selectors.EVENT_READ)
    lines: dict[int, socket.socket] = {}
    print("ready", flush=True)
    while True:
        for key, _ in chosen.select():
            if key.fileobj is sys.stdin:
                for process in lines:
                    os.kill(process, signal.SIGKILL)
                os._exit(0)
            if key.fileobj is woken:
                woken.recv(1000)
                _reap(lines, chosen)
            elif key.fileobj is listener:
                line, _ = listener.accept()
                job = _received(line, own, client)
                if job is None:
                    line.close()
                    continue
                process = os.fork()
                if process == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for thing in (listener, woken, waker, line, chosen, *lines.values()):
                        thing.close()
                    return job
                for number in job.files.values():
                    os.close(number)
                lines[process] = line
                chosen.register(line, selectors.EVENT_READ)
                _say(line, f"process {process}\n")
            else:  # a client that is gone: killed, as what it asked for is to be
                gone = key.fileobj
                assert isinstance(gone, socket.socket)
                chosen.unregister(gone)
                for process, line in lines.items():
                    if line is gone:
                        os.kill(process, signal.SIGKILL)


def _import_all_of(package: ModuleType) -> None:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if found.name.rpartition(".")[2] not in NOT_IMPORTED:
            try:
                module = importlib.import_module(found.name)
            except ModuleNotFoundError as error:  # of a library that this environment does not have
                if error.name is None or error.name.startswith("steadytrain"):
                    raise
                continue
            if found.ispkg:
                _import_all_of(module)


def _do_once() -> None:
    """What a process of ours does in its first run and remembers."""
    keep_compiler_out()
    environment.versions()
    known_tools()
    os.fsync = warm.sync


def _reap(lines: dict[int, socket.socket], chosen: selectors.BaseSelector) -> None:
    for process in list(lines):
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            line = lines.pop(process)
            if line in [key.fileobj for key in chosen.get_map().values()]:
                chosen.unregister(line)
            _say(line, f"ended {os.waitstatus_to_exitcode(status)}\n")
            line.close()


def _say(line: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):
        line.sendall(text.encode())


def _received(line: socket.socket, own: dict[str, str], client: str) -> Job | None:
    head, files, _, _ = socket.recv_fds(line, 8, FILES_MAX)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "big")
    message = b""
    while len(message) < size:
        some = line.recv(size - len(message))
        if not some:
            return None
        message += some
    count, numbers, cores, folder, *rest = (os.fsdecode(part) for part in message.split(b"\0"))
    environment = dict(entry.split("=", 1) for entry in rest[int(count) :])
    if _read_at_import(environment) != own:
        _say(line, "fresh 0\n")
        for number in files:
            os.close(number)
        return None
    wanted = [int(number) for number in numbers.split(",")]
    places = {int(core) for core in cores.split(",")}
    return Job(rest[: int(count)], folder, environment, dict(zip(wanted, files, strict=True)), client, places)


def _read_at_import(environment: dict[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if name.startswith(READ_AT_IMPORT) and name not in READ_LATER
    }


def become(job: Job) -> NoReturn:
    """Run what the job asks for, as an interpreter would that had just begun, and end.

    The end is that of an interpreter too, without taking apart what it holds: that costs as much as importing torch.
    """
    _take_files(job.files)
    for name in ("warm", __name__):
        del sys.modules[name]  # this is no module of the script's
    os.sched_setaffinity(0, job.cores)
    os.chdir(job.folder)
    os.environ.clear()
    os.environ.update(job.environment)
    Guard.reraise = bool(os.environ.get(RAISE_VARIABLE))
    tempfile.tempdir = None
    sys.warnoptions[:] = [option for option in job.environment.get("PYTHONWARNINGS", "").split(",") if option]
    warnings._processoptions(sys.warnoptions)  # type: ignore[attr-defined]
    random.seed()
    np.random.seed(None)
    torch.default_generator.seed()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty())  # type: ignore[union-attr]
    sys.executable = job.interpreter
    sys.orig_argv = [job.interpreter, *job.arguments]
    main = sys.modules["__main__"].__dict__
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    status = _status(job.arguments, main)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = 120
    os._exit(status)


def _status(arguments: list[str], main: dict[str, Any]) -> int:
    try:
        _run(arguments, main)
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            return (ending.code or 0) & 0xFF
        print(ending.code, file=sys.stderr)
        return 1
    except BaseException as error:
        above = error.__traceback__
        assert above is not None
        below = above.tb_next.tb_next if above.tb_next is not None else None  # without this function and the next one
        sys.excepthook(type(error), error.with_traceback(below), below)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def _run(arguments: list[str], main: dict[str, Any]) -> None:
    first, *others = arguments
    if first == "-m":
        sys.argv = ["-m", *others[1:]]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(others[0])  # type: ignore[attr-defined]
        return
    sys.argv = [first, *others]
    sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
    if not os.path.exists(first):
        sys.exit(f"{sys.executable}: can't open file {first!r}: [Errno 2] No such file or directory")
    path = os.path.join(os.getcwd(), first)  # as it was written
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main.update(__file__=path, __cached__=None, __doc__=None, __spec__=None, __loader__=loader, __package__=None)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main)


def _take_files(files: dict[int, int]) -> None:
    """Give each file the number that it had in the client."""
    high = 1 + max([*files, *files.values()])
    moved = {number: os.dup2(there, high + place) for place, (number, there) in enumerate(files.items())}
    for there in files.values():
        os.close(there)
    for number, there in moved.items():
        os.dup2(there, number, inheritable=True)
        os.close(there)
