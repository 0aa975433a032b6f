"""Runs a script for ``debug``: under watch, once for each version of it, and through the checks of a preflight.

The run keeps its name as long as script, arguments and folder are the same, so a second call finds it. Torch-free: the
script runs in processes of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.switch import VARIABLE
from steadytrain.method.evidence import PREFLIGHT_FILE
from steadytrain.replay.child_processes import process_group
from steadytrain.replay.file_sandbox import SCRATCH_VARIABLE
from steadytrain.replay.written_files import note_written
from steadytrain.storage.bundle import write_json
from steadytrain.storage.run_folder import open_run

INTERRUPT_S = 20.0
"""Time for a script to end after an interrupt, before it is ended."""

LAST_LINES = 3
STEM_MAX = 40
TRIES_MAX = 100


@dataclass(frozen=True)
class Script:
    """A script with its arguments, to be run in the current folder."""

    path: Path
    arguments: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        return [str(self.path), *self.arguments]

    @property
    def run_name(self) -> str:
        """The name of its run: the same as long as its text, arguments and folder are."""
        parts = (self.path.read_bytes(), repr(self.arguments).encode(), os.getcwd().encode())
        digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:8]
        return f"debug-{self.path.stem[:STEM_MAX]}-{digest}"


def watched_run(script: Script, runs_dir: Path, *, wait_s: float) -> tuple[Path, str]:
    """The run folder of the script, recorded now if it is not there yet, and a note where it was cut short.

    The script is interrupted after ``wait_s`` seconds. What it writes goes to a scratch folder, so that it saves over
    none of its files. Its tape is kept, so that its last steps can be replayed.

    Raises:
        UsageError: the script ended before its first optimizer step.
    """
    folder = _folder(runs_dir / script.run_name)
    if _has_steps(folder):
        return folder, ""
    options = ["--runs-dir", str(runs_dir), "--name", folder.name, "--keep-rewind"]
    with tempfile.TemporaryDirectory(prefix="steadytrain-debug-", ignore_cleanup_errors=True) as scratch:
        ended = _launched(["run", *options, *script.words], wait_s, {SCRATCH_VARIABLE: scratch, VARIABLE: "1"})
        note_written(Path(scratch))
    if not _has_steps(folder):
        when = f"within {wait_s:.0f} s (--budget)" if ended.cut else f"(it ended with {ended.status})"
        said = f"; it said: {' | '.join(ended.said)}" if ended.said and not ended.cut else ""
        raise UsageError(f"{script.path}: no optimizer step was seen {when}{said}")
    return folder, f"the script was interrupted after {wait_s:.0f} s, half of --budget" if ended.cut else ""


def preflight(script: Script, run: Path, *, wait_s: float) -> str | None:
    """Check the script's first steps and keep the document with its run. Returns why nothing was checked, else None."""
    ended = _launched(["preflight", "--json", "--wait-s", f"{wait_s:.0f}", *script.words], wait_s)
    if ended.cut:
        return f"preflight took more than {wait_s:.0f} s"
    try:
        document: Any = json.loads(ended.out)
        write_json(run / PREFLIGHT_FILE, document)
    except (ValueError, OSError):
        return f"preflight checked nothing: {' | '.join(ended.said) or f'it ended with {ended.status}'}"
    return None


def _folder(first: Path) -> Path:
    """The folder of the whole run, else one that is free: what was killed in the middle says nothing about the end."""
    names = (first, *(first.with_name(f"{first.name}-{number}") for number in range(2, TRIES_MAX)))
    return next((one for one in names if not one.exists() or _has_steps(one)), first)


def _has_steps(folder: Path) -> bool:
    """Whether there is a run that recorded steps and how it ended."""
    try:
        run = open_run(folder)
        return run.ended is not None and run.steps > 0
    except (UsageError, OSError):
        return False


@dataclass(frozen=True)
class _Ended:
    status: int
    out: str
    said: tuple[str, ...]
    cut: bool


def _launched(arguments: Sequence[str], wait_s: float, variables: Mapping[str, str] = {}) -> _Ended:
    """A command of steadytrain in a process of its own, interrupted after ``wait_s`` seconds."""
    command = [sys.executable, "-m", "steadytrain", *arguments]
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as error,
        process_group(command, environment={**os.environ, **variables}, stdout=out, stderr=error) as child,
    ):
        cut = not _ends(child, wait_s)
        if cut:
            child.send_signal(signal.SIGINT)
            _ends(child, INTERRUPT_S)
        status = child.poll()
        texts = []
        for file in (out, error):
            file.seek(0)
            texts.append(file.read().decode("utf-8", errors="replace"))
    said = tuple(line.strip() for line in texts[1].splitlines() if line.strip())[-LAST_LINES:]
    return _Ended(-1 if status is None else status, texts[0], said, cut)


def _ends(child: subprocess.Popen[str], wait_s: float) -> bool:
    try:
        child.wait(max(0.1, wait_s))
    except subprocess.TimeoutExpired:
        return False
    return True
