"""The common part of every reproduction after the capture: shrink, verify in a fresh process, write.

The captured fault lies in a scratch folder. A separate process shrinks it and writes ``made.json``, the script
``repro.py``, its tensors ``repro.pt``, and ``exact.py``, which replaces a script that does not fail.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Finding
from steadytrain.experiments.command_results import ROWS_WRITTEN
from steadytrain.repro.bounded_process import run_python
from steadytrain.storage.documents import write_text

ISSUE, NOTE = "ISSUE.md", "NOTE.md"
"""A draft of a bug report, or a note for the own project if the value is documented behaviour."""

FRESH_WAIT_S = 120.0
"""For a script of a few operations. Importing torch from a slow disk takes most of it."""

LOG_CHARACTERS_MAX = 300


ROWS, ROWS_TEXT = "rows.pt", "ROWS.md"
"""What is written in place of a script where the batch itself is damaged."""


@dataclass(frozen=True)
class Repro:
    """The result. ``why`` says what was made, or why nothing was. ``files`` maps names to sizes in bytes."""

    made: bool
    why: str
    files: Mapping[str, int] = field(default_factory=dict)
    lines: int | None = None
    facts: Mapping[str, Any] | None = None
    variants: Mapping[str, str] = field(default_factory=dict)
    finding: Finding | None = None
    rows: Mapping[str, list[int]] = field(default_factory=dict)

    @property
    def effect(self) -> str:
        """What is kept of it: that rows of the batch were written in place of a script."""
        return ROWS_WRITTEN if self.rows and not self.made else ""


def check_folder(folder: Path) -> None:
    """Raises ``UsageError`` if ``folder`` is no folder, or holds more than the rows of a call without a script."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: not a folder; name another with -o")
    if folder.is_dir() and {path.name for path in folder.iterdir()} - {ROWS, ROWS_TEXT}:
        raise UsageError(f"{folder}: this folder is not empty; name another with -o")


def made_small(
    scratch: Path, command: list[str], *, wait_s: float, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Runs ``command`` in its own process, because odd shapes may crash it, and reads ``made.json``."""
    made = scratch / "made.json"
    made.unlink(missing_ok=True)
    try:
        done = run_python(["-m", *command], wait_s=wait_s, environment=environment)
    except subprocess.TimeoutExpired:
        return {"why": f"shrinking the script took more than {wait_s:.0f} s (--wait-s)"}
    if not made.is_file():
        said = done.stderr.strip()[-LOG_CHARACTERS_MAX:]
        return {"why": f"shrinking the script ended with {done.returncode}: {said}"}
    found: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
    return found


def put_down(
    scratch: Path, folder: Path, issue: Callable[[str, int | None], str], *, name: str = ISSUE
) -> tuple[dict[str, int], int]:
    """Writes everything to the folder, the script last. ``issue`` gets the script and the size of its tensors, if any;
    its text goes to the file ``name``.

    Returns the sizes of the files in bytes and the number of lines of the script.
    """
    script, tensors = scratch / "repro.py", scratch / "repro.pt"
    text = script.read_text(encoding="utf-8")
    size = tensors.stat().st_size if tensors.is_file() else None
    folder.mkdir(parents=True, exist_ok=True)
    for old in (ROWS, ROWS_TEXT):
        (folder / old).unlink(missing_ok=True)
    if size is not None:
        shutil.copyfile(tensors, folder / tensors.name)
    write_text(folder / name, issue(text, size))
    shutil.copyfile(script, folder / script.name)
    return sizes_of(folder), len(text.splitlines())


def sizes_of(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
