"""The folder of a run: created at the start so that two runs never share one, and removed if it stays empty."""

from __future__ import annotations

import itertools
import os
import re
import time
import zlib
from pathlib import Path

from steadytrain.attach.messages import tell
from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.storage.redaction import redact_text

NAME_BYTES_MAX = 200

_made: dict[Path, tuple[Path, ...]] = {}
"""Folders that this process created for run names, each run's own first."""


def free_folder(runs_dir: Path, name: str, *, named: bool, shared: bool = False) -> Path:
    """Create a folder with that name that no other run uses.

    A torchrun worker shares its launcher's folder. ``shared``: so do the tasks of a SLURM job step, ranks of one run.
    """
    name = shortened(without_secrets(name))
    is_there, is_folder = os.path.lexists(runs_dir), os.path.isdir(runs_dir)  # unlike Path's, these do not raise
    if os.path.exists(runs_dir) and not is_folder:
        raise UsageError(f"{runs_dir}: not a folder; name another with --runs-dir")
    if shared or torchrun_shares():
        return runs_dir / name
    is_new = not is_there
    for number in itertools.count(1):
        path = runs_dir / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)  # if two runs start at the same time, only one of them creates it
        except FileExistsError:
            if named:
                raise UsageError(f"{path}: this run exists already; give another --name") from None
        except own(OSError) as error:
            tell(
                f"warning: no folder can be made in {runs_dir} ({error.strerror}), so nothing will be recorded; the "
                "policy still acts, and alerts are still sent; name another place with --runs-dir"
            )
            break
        else:
            _made[path] = (path, runs_dir) if is_new else (path,)
            break
    return path


def torchrun_shares() -> bool:
    """Whether torchrun started this process: its ranks share the folder of a run."""
    return "LOCAL_RANK" in os.environ


def made_here(run_dir: Path) -> bool:
    """Whether this process created the folder for itself, and does not share it with its launcher or its parent."""
    return run_dir in _made


def without_secrets(name: str) -> str:
    """A name of a run with the secrets in it replaced by words that a file system takes."""
    kept = redact_text(name)
    return name if kept == name else re.sub(r"[^\w.=-]+", "-", kept).strip("-")


def shortened(name: str) -> str:
    """``name`` without its middle where a file system would not take it, with room for what is added to it."""
    data = os.fsencode(name)
    if len(data) <= NAME_BYTES_MAX:
        return name
    begin, end = data[: NAME_BYTES_MAX // 2], data[-NAME_BYTES_MAX // 4 :]
    return f"{begin.decode(errors='ignore')}-{zlib.crc32(data):08x}-{end.decode(errors='ignore')}"


def give_back(run_dir: Path) -> None:
    """Remove the folders created for the run's name if they are empty."""
    made = _made.pop(run_dir, ())
    with unless_it_fails(OSError):
        for folder in made:
            folder.rmdir()


def start_stamp() -> str:
    """The start time. Workers of torchrun use their launcher's, so that they agree on the name."""
    started = time.time()
    if torchrun_shares():
        try:
            started = os.stat(f"/proc/{os.getppid()}").st_ctime
        except own(OSError):
            started = time.time() // 60 * 60
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(started))
