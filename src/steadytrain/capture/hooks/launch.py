"""Runs a script as ``python SCRIPT`` would: its own ``__main__``, its arguments, exit status, signals and output.

This file does not import torch: it is loaded before the script, and the script decides when torch is imported.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import json
import os
import runpy
import signal
import sys
import tokenize
import types
import zipfile
import zipimport
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own

ATTACH_VARIABLE = "STEADYTRAIN_ATTACH"
INTERRUPTED_STATUS = 130
Finish = Callable[[str, int | None, BaseException | None], int | None]
_OWN_FOLDER = str(Path(__file__).parents[2])
KEPT_NAMES = ("__main__", "steadytrain", "torch", "numpy")
"""Modules that are not forgotten, whatever the script calls its own."""


@dataclass(frozen=True)
class Target:
    """What to run: a script file (with its compiled code), a zipapp or folder with a ``__main__``, or a module, and its
    arguments."""

    name: str
    arguments: tuple[str, ...]
    code: types.CodeType | None
    holds_main: bool = False

    @property
    def is_module(self) -> bool:
        return self.code is None and not self.holds_main

    @property
    def file(self) -> str:
        """The file that holds its ``__main__``, or the module."""
        return os.path.join(self.name, "__main__.py") if self.holds_main and os.path.isdir(self.name) else self.name

    @property
    def stem(self) -> str:
        return self.name.rsplit(".", 1)[-1] if self.is_module else Path(self.name).stem

    @property
    def command(self) -> list[str]:
        """The command line that runs it again, without the interpreter."""
        return ["-m", self.name, *self.arguments] if self.is_module else [self.name, *self.arguments]


def script_target(script: str, arguments: Sequence[str]) -> Target:
    """Check that ``script`` can be run, without running it.

    Raises:
        UsageError: it does not exist, is a folder or an archive without ``__main__.py``, is not Python source, or has a
            syntax error.
    """
    path = Path(script)
    if path.is_dir() and (path / "__main__.py").is_file():
        return Target(script, tuple(arguments), None, holds_main=True)
    if path.is_dir():
        raise UsageError(f"{script}: this is a folder; name the script in it, or a module with -m")
    if not path.is_file():
        raise UsageError(f"{script}: no such script; the path is taken from {Path.cwd()}")
    if zipfile.is_zipfile(path):
        return _archive_target(script, arguments)
    try:
        with tokenize.open(path) as file:
            source = file.read()
        code = compile(source, _absolute(script), "exec", dont_inherit=True)
    except SyntaxError as error:
        if error.lineno is None:  # null bytes, or no encoding that fits
            raise UsageError(f"{script}: not Python source ({error.msg}); nothing was run") from None
        raise UsageError(f"{script}:{error.lineno}: syntax error: {error.msg}; nothing was run") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{script}: not Python source ({error}); nothing was run") from None
    except own(OSError) as error:
        raise UsageError(f"{script}: cannot be read ({error.strerror})") from None
    return Target(script, tuple(arguments), code)


def _archive_target(script: str, arguments: Sequence[str]) -> Target:
    """Check that ``python ARCHIVE`` would find something to run."""
    try:
        found = zipimport.zipimporter(_absolute(script)).find_spec("__main__")
    except zipimport.ZipImportError as error:
        raise UsageError(f"{script}: an archive that Python cannot read ({error}); nothing was run") from None
    if found is None:
        raise UsageError(f"{script}: an archive without __main__.py; nothing was run")
    return Target(script, tuple(arguments), None, holds_main=True)


def module_target(module: str, arguments: Sequence[str]) -> Target:
    """Check that ``python -m module`` would find something to run."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd()  # as -m does
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{module}.__main__")
    except (ImportError, ValueError) as error:
        raise UsageError(f"{module}: no such module ({error})") from None
    if spec is None:
        raise UsageError(f"{module}: no such module, or a package without __main__")
    return Target(module, tuple(arguments), None)


def arm_children(settings: Mapping[str, Any], start_folder: Path) -> None:
    """Set the environment so that every Python process that the script starts finds the start hook in
    ``start_folder``."""
    os.environ[ATTACH_VARIABLE] = json.dumps(settings)
    paths = [str(start_folder), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def execute(target: Target, finish: Finish) -> int:
    """Run ``target`` to its end and return its exit status.

    ``finish(how, status, error)`` is called once, after the script's end and before the script's error is shown. Its
    arguments are ``finished`` or ``failed``, the exit status if known, and the exception that the script raised (with
    living frames). It may return another exit status.
    """
    try:
        _run_as_main(target)
    except SystemExit as ending:
        status = _exit_status(ending)
        return _override(finish("finished" if status == 0 else "failed", status, ending), status)
    except KeyboardInterrupt as interruption:
        override = finish("interrupted", INTERRUPTED_STATUS, interruption)
        if override is not None:
            return override
        _show(interruption)
        # End like Python itself, killed by the signal: then a calling shell stops its loop too.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return INTERRUPTED_STATUS
    except BaseException as error:
        override = finish("failed", 1, error)
        if override is not None:
            return override
        _show(error)
        return 1
    return _override(finish("finished", 0, None), 0)


def _run_as_main(target: Target) -> None:
    sys.argv = [target.name, *target.arguments]
    main = types.ModuleType("__main__")
    main.__dict__.update({"__annotations__": {}, "__builtins__": builtins})
    sys.modules["__main__"] = main
    if target.holds_main:
        kept = 0 if getattr(sys.flags, "safe_path", False) else 1
        sys.path[:kept] = [_absolute(target.name)]  # as Python does, also with -P
        _leave_names_to(sys.path[0])
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    if target.code is None:
        _leave_names_to(sys.path[0])
        # The public run_module destroys its __main__ although atexit handlers may still need it.
        runpy._run_module_as_main(target.name)  # type: ignore[attr-defined]
        return
    path = _absolute(target.name)
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))
        _leave_names_to(sys.path[0])
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__["__cached__"] = None
    exec(target.code, main.__dict__)


def _leave_names_to(folder: str) -> None:
    """Forget the packages that only we have imported so far (``click``) where the script has a module of that name:
    it imports its own, as it would without us."""
    for name in {loaded.partition(".")[0] for loaded in sys.modules} - {*sys.stdlib_module_names, *KEPT_NAMES}:
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        spec = importlib.machinery.PathFinder.find_spec(name, [folder])
        if spec is not None and spec.origin and not file.startswith(folder + os.sep):  # a plain folder has no origin
            for loaded in [one for one in sys.modules if one.partition(".")[0] == name]:
                del sys.modules[loaded]


def _absolute(script: str) -> str:
    """The absolute path as Python forms it: the working folder and the name as given, ``./`` included."""
    return os.path.join(os.getcwd(), script)


def _exit_status(ending: SystemExit) -> int:
    if ending.code is None:
        return 0
    if isinstance(ending.code, int):
        return ending.code
    if sys.stderr is not None:
        sys.stderr.write(f"{ending.code}\n")  # a script may have put a function of its own in place of `print`
        sys.stderr.flush()
    return 1


def _override(override: int | None, status: int) -> int:
    return status if override is None else override


def _show(error: BaseException) -> None:
    """Print the script's traceback without the outermost frames of steadytrain and runpy."""
    frames = error.__traceback__
    while frames is not None and _is_ours(frames):
        frames = frames.tb_next
    if isinstance(error, KeyboardInterrupt):
        _cut_ours(frames)
    sys.stdout.flush()
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, frames)
        return
    whole, error.__traceback__ = error.__traceback__, frames
    try:
        sys.__excepthook__(type(error), error, frames)  # as Python does it, with its hints and colours
    finally:
        error.__traceback__ = whole


def _cut_ours(frames: types.TracebackType | None) -> None:
    """End a traceback where it enters steadytrain, if the script was interrupted inside."""
    from steadytrain.capture.incident.source_hashes import is_library

    of_script = None
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not file.startswith("<") and not is_library(file):
            of_script = frames
        frames = frames.tb_next
    while of_script is not None and (below := of_script.tb_next) is not None:
        if below.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
            of_script.tb_next = None
        of_script = below


def _is_ours(frames: types.TracebackType) -> bool:
    filename = frames.tb_frame.f_code.co_filename
    return filename.startswith((_OWN_FOLDER, "<frozen")) or filename.endswith("/runpy.py")
