"""Redirects the file writes of a launched script to a scratch folder, so that the user's files stay unchanged.

A relaunched script repeats its file operations: it overwrites its checkpoint, removes old ones and reopens its log.
Here each of these goes to a :class:`FileMirror`. The script reads back what it wrote and no longer sees what it
removed.

The sandbox replaces Python's path functions (``os``, ``open``), ``sqlite3``, and those of native libraries that
``native_files`` knows. Where the kernel supports it, ``landlock`` forbids all other writes, which then fail in the
script.
"""

from __future__ import annotations

import builtins
import getpass
import inspect
import io
import json
import os
import pathlib
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import update_wrapper
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from steadytrain.replay.audit_rules import AuditRules
from steadytrain.replay.file_mirror import FileMirror, own_words
from steadytrain.replay.files_at_begin import FilesAtBegin
from steadytrain.replay.landlock import forbid_writing, kernel_version
from steadytrain.replay.native_files import first_written, redirect_libraries, refuse_attaching
from steadytrain.replay.offline import disable_trackers, go_offline
from steadytrain.replay.original_functions import Entries
from steadytrain.replay.own_processes import OwnProcesses
from steadytrain.replay.programs import SANDBOX_VARIABLE
from steadytrain.replay.written_files import WRITTEN

SYSTEM_FOLDERS = tuple(map(Path, ("/dev", "/proc", "/sys")))
COMPILER_CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "",
    "TRITON_CACHE_DIR": "~/.triton",
    "CUDA_CACHE_PATH": "~/.nv",
    "NUMBA_CACHE_DIR": "",
    "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
}
"""Cache folders of compilers and drivers, by variable, with their defaults. They stay writable, because speed depends
on
them.
"""

SCRATCH_VARIABLE = "STEADYTRAIN_SCRATCH"
"""Set by ``debug`` for its watched run: the folder to which the script writes."""

NO_FOLDER = Path("/proc/0")
NO_NAME = getattr(os, "O_TMPFILE", 0)
"""The flags of a file that is in no folder: whether a folder can be written to is often tried with one."""

WRITES = ("w", "a", "x", "+")
START_FOLDER = Path(__file__).parents[1] / "attach" / "start"
"""Its ``sitecustomize`` puts Python processes that the script starts into the same sandbox."""


def protect_files(scratch: Path, *, also: Iterable[Path] = (), began: FilesAtBegin | None = None) -> None:
    """Redirects all later file writes of this process below ``scratch``, and takes it offline.

    The script may write directly to ``scratch`` and to the folders ``also``. Python processes that it starts write to
    the same place. It finds the files that it ``began`` with.
    """
    began = began or FilesAtBegin()
    temporary = scratch / f"tmp-{os.getpid()}"
    temporary.mkdir(parents=True, exist_ok=True)
    _keep_compiler_cache()
    folders = (scratch.resolve(), *(folder.resolve() for folder in also))
    writable = (*folders, *SYSTEM_FOLDERS, *_folders(COMPILER_CACHES))
    has_network = go_offline(scratch)
    mirror = scratch / f"{WRITTEN}{os.getpid()}"
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    _redirect(mirror, writable).mirror.begin_with(began.hidden, began.instead)
    has_kernel_rule = forbid_writing(writable)
    own = OwnProcesses(str(mirror))
    _watch_calls(writable, own, has_kernel_rule=has_kernel_rule, has_network=has_network)
    told = {
        "mirror": mirror,
        "instead": began.instead,
        "writable": writable,
        "since": own.since,
        "kernel": has_kernel_rule,
        "network": has_network,
    }
    os.environ[SANDBOX_VARIABLE] = json.dumps(told, default=lambda value: str(value))
    paths = [str(START_FOLDER), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def protect_child() -> None:
    """Puts this process, which a launched script started, into the script's sandbox. The start hook calls it."""
    told = json.loads(os.environ[SANDBOX_VARIABLE])
    writable = tuple(map(Path, told["writable"]))
    disable_trackers()
    joined = _redirect(Path(told["mirror"]), writable).mirror
    joined.join()
    joined.begin_with((), told["instead"])
    own = OwnProcesses(told["mirror"], told["since"])
    _watch_calls(writable, own, has_kernel_rule=told["kernel"], has_network=told["network"])


def _redirect(mirror: Path, writable: tuple[Path, ...]) -> FileSandbox:
    sys.dont_write_bytecode = True
    sandbox = FileSandbox(FileMirror(mirror, writable=writable))
    _by_real_names.append(FileMirror(NO_FOLDER, writable=writable))
    sandbox.install()
    _installed.append(sandbox)
    return sandbox


def _watch_calls(writable: tuple[Path, ...], own: OwnProcesses, *, has_kernel_rule: bool, has_network: bool) -> None:
    folders = tuple(f"{folder}{os.sep}" for folder in writable)
    resolve = _by_real_names[-1].named
    AuditRules(folders, resolve, has_kernel_rule=has_kernel_rule, has_network=has_network, own=own).install()
    own.replace_functions()


_installed: list[FileSandbox] = []
_by_real_names: list[FileMirror] = []
"""Mirrors of nothing, made before Python's functions were replaced: they resolve paths as they really are."""


def keep_files(folder: Path) -> None:
    """Copies the written files before this process forks, for :func:`restore_files`."""
    for sandbox in _installed:
        sandbox.mirror.keep(folder)


def restore_files() -> None:
    """Restores the written files to their state at :func:`keep_files`, after a forked copy has ended."""
    for sandbox in _installed:
        sandbox.mirror.restore()


def _keep_compiler_cache() -> None:
    """Fixes the compiler cache to its default place, before the temporary folder moves. Otherwise graphs would
    recompile."""
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        with suppress(OSError, KeyError):
            user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
            folder = Path(tempfile.gettempdir()) / f"torchinductor_{user}"
            folder.mkdir(exist_ok=True)
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


def _folders(variables: Mapping[str, str]) -> Iterator[Path]:
    """The folders that are there; none that holds the working folder or the home folder, and so the user's files."""
    kept = [Path.cwd(), Path.home().resolve()]
    for variable, default in variables.items():
        name = os.environ.get(variable) or default
        folder = Path(os.path.expanduser(name)).resolve() if name else None
        if folder is not None and folder.is_dir() and not any(own.is_relative_to(folder) for own in kept):
            yield folder


class FileSandbox:
    """Replaces the file functions of Python and of native libraries with versions that use a mirror."""

    def __init__(self, mirror: FileMirror) -> None:
        self.mirror = mirror

    def install(self) -> None:
        """Replaces them in this process for good."""
        shutil._use_fd_functions = False  # type: ignore[attr-defined]  # rmtree by paths
        self._replace(os, "open", self._os_open)
        for module in (builtins, io):
            self._replace(module, "open", self._open)
        for name in ("bz2", "lzma", "tarfile"):
            importing = sys.modules.get(name)
            for kept in ("_builtin_open", "bltn_open"):
                if hasattr(importing, kept):
                    setattr(importing, kept, builtins.open)
        for name in ("stat", "access", "statvfs", "listxattr", "getxattr"):
            self._replace(os, name, self._reads(name))
        for name in ("lstat", "readlink"):
            self._replace(os, name, self._reads(name, follow=False))
        for name in ("truncate", "utime", "chmod", "fchmod", "setxattr", "removexattr", "mkfifo", "mknod"):
            self._replace(os, name, self._writes(name))
        for name in ("chown", "lchown", "fchown"):
            self._replace(os, name, lambda *args, **kwargs: None)
        for name, ours in (
            ("chdir", self._chdir),
            ("listdir", self._listdir),
            ("scandir", self._scandir),
            ("getcwd", lambda: self.mirror.outside(self.mirror.real.getcwd())),
            ("mkdir", self._mkdir),
            ("rmdir", self._named_rightly(self.mirror.rmdir)),
            ("remove", self._named_rightly(self.mirror.remove)),
            ("unlink", self._named_rightly(self.mirror.remove)),
            ("rename", self._named_rightly(self.mirror.rename)),
            ("replace", self._named_rightly(self.mirror.rename)),
            ("link", self._named_rightly(self.mirror.link)),
            ("symlink", self._symlink),
        ):
            self._replace(os, name, ours)
        self._replace(sqlite3, "connect", self._database(sqlite3.connect))
        self._replace(sqlite3.dbapi2, "connect", sqlite3.connect)
        self._mend_pathlib()
        self._mend_tempfile()
        redirect_libraries(self.mirror)

    def _replace(self, owner: Any, name: str, ours: Callable[..., Any]) -> None:
        if hasattr(owner, name):
            theirs = getattr(owner, name)
            if inspect.isfunction(ours):
                update_wrapper(ours, theirs)
            setattr(owner, name, ours)
            for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
                if theirs in known:
                    known.add(getattr(owner, name))

    def _reads(self, name: str, *, follow: bool = True) -> Callable[..., Any]:
        theirs = getattr(os, name)

        def ours(path: Any = ".", *args: Any, dir_fd: int | None = None, **kwargs: Any) -> Any:
            followed = follow and kwargs.get("follow_symlinks", True)
            if not self.mirror.is_used or isinstance(path, int):
                more = {} if dir_fd is None else {"dir_fd": dir_fd}
                return theirs(path, *args, **more, **kwargs)
            with own_words(path):
                return theirs(self.mirror.reading(path, dir_fd, follow=followed), *args, **kwargs)

        return ours

    def _writes(self, name: str) -> Callable[..., Any]:
        theirs = getattr(os, name, None)

        def ours(path: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> Any:
            assert theirs is not None
            if isinstance(path, int) and not self.mirror.holds(path):
                return None  # a file of the user's, open for reading: its mode and times stay
            with own_words(path):
                return theirs(self.mirror.writing(path, dir_fd), *args, **kwargs)

        return ours

    def _named_rightly(self, does: Callable[..., None]) -> Callable[..., None]:
        def ours(*args: Any, **kwargs: Any) -> None:
            with own_words(*args[:2]):
                does(*args, **kwargs)

        return ours

    def _database(self, theirs: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps ``sqlite3.connect``, whose first argument is a path, or with ``uri`` a file URI."""
        by_path = first_written(self.mirror, theirs)
        by_kernel = kernel_version() >= 1

        def opened(connection: Any) -> Any:
            if not by_kernel:
                refuse_attaching(connection, self.mirror)
            return connection

        def ours(database: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("uri") or not str(database).startswith("file:"):
                return opened(by_path(database, *args, **kwargs))
            path, mark, query = str(database).removeprefix("file:").partition("?")
            redirect = self.mirror.reading if "mode=ro" in query else self.mirror.writing
            if path != ":memory:" and "mode=memory" not in query:
                path = quote(os.fspath(redirect(unquote(path))))
            return opened(theirs(f"file:{path}{mark}{query}", *args, **kwargs))

        return ours

    def _open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        opener = kwargs.get("opener")
        if opener is not None and any(letter in mode for letter in WRITES):  # it opens by a function that we replaced
            kwargs |= {"opener": lambda _, flags: opener(file, flags)}
            return self.mirror.real.open(tempfile.gettempdir(), mode, *args, **kwargs)
        if isinstance(file, int) or opener is not None:
            return self.mirror.real.open(file, mode, *args, **kwargs)
        with own_words(file):
            if not any(letter in mode for letter in WRITES):
                return self.mirror.real.open(self.mirror.reading(file), mode, *args, **kwargs)
            if "x" in mode:
                self.mirror.must_be_new(file)
            return self.mirror.real.open(self.mirror.writing(file, keep="w" not in mode), mode, *args, **kwargs)

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with own_words(path):
            if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
                if not self.mirror.is_used:
                    return int(self.mirror.real.os_open(path, flags, mode, dir_fd=dir_fd))
                return int(self.mirror.real.os_open(self.mirror.reading(path, dir_fd), flags, mode))
            if NO_NAME and flags & NO_NAME == NO_NAME:  # in any folder it is no file of the user's
                return int(self.mirror.real.os_open(tempfile.gettempdir(), flags, mode))
            if flags & os.O_EXCL and flags & os.O_CREAT:
                self.mirror.must_be_new(path, dir_fd)
            return int(
                self.mirror.real.os_open(
                    self.mirror.writing(path, dir_fd, keep=not (flags & os.O_TRUNC and flags & os.O_CREAT)), flags, mode
                )
            )

    def _chdir(self, path: Any) -> None:
        with own_words(path):
            if isinstance(path, int) or not self.mirror.is_used:
                self.mirror.real.chdir(path)
                return
            named = self.mirror.named(path)
            is_there = self.mirror.real.isdir(named) and not self.mirror.is_gone(named)
            self.mirror.real.chdir(named if is_there else self.mirror.lies(named))

    def _listdir(self, path: Any = ".") -> list[Any]:
        if isinstance(path, int) or not self.mirror.is_used:
            found: list[Any] = self.mirror.real.listdir(path)
            return found
        with own_words(path):
            names = [entry.name for entry in self.mirror.entries(path)]
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def _scandir(self, path: Any = ".") -> Any:
        if isinstance(path, int) or not self.mirror.is_used:
            return self.mirror.real.scandir(path)
        with own_words(path):
            return Entries(self.mirror.entries(path))

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        with own_words(path):
            self.mirror.must_be_new(path, dir_fd)
            self.mirror.real.mkdir(self.mirror.writing(path, dir_fd, follow=False), mode)

    def _symlink(self, src: Any, dst: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> None:
        with own_words(src, dst):
            self.mirror.must_be_new(dst, dir_fd)
            self.mirror.real.symlink(os.fsdecode(src), self.mirror.writing(dst, dir_fd, keep=False, follow=False))

    def _mend_tempfile(self) -> None:
        """Redirects what removes a temporary file: it keeps ``os.unlink`` as the default of a parameter."""
        for one in vars(getattr(tempfile, "_TemporaryFileCloser", object)).values():
            defaults = getattr(one, "__defaults__", None) if inspect.isfunction(one) else None
            if defaults:
                one.__defaults__ = tuple(
                    os.unlink if getattr(kept, "__name__", "") == "unlink" else kept for kept in defaults
                )

    def _mend_pathlib(self) -> None:
        """Redirects pathlib in Python 3.10, which keeps its own references to the functions of ``os``."""
        accessor = getattr(pathlib, "_NormalAccessor", None)
        for name in vars(accessor) if accessor is not None else ():
            ours = io.open if name == "open" else getattr(os, name, None)
            if not name.startswith("__") and ours is not None:
                setattr(accessor, name, staticmethod(ours))
