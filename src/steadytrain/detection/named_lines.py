"""Finds the line of the script that a symptom names, such as ``train.py:17``, so that its code is shown beside it."""

from __future__ import annotations

import functools
import linecache
import os
import re
import sys
from pathlib import Path
from types import ModuleType

from steadytrain.capture.step.late_lines import INSTALLED
from steadytrain.core.model import ScriptLine

CODE_MAX = 200
NAMED = re.compile(r"(?<![\w./\\-])([\w.-]+\.py):(\d{1,7})(?!\d)")


def named_line(message: str) -> ScriptLine | None:
    """The first line that ``message`` names; None if no module of the script, or more than one, has that file name."""
    found = NAMED.search(message)
    return _line(found[1], int(found[2]), len(sys.modules)) if found is not None else None


@functools.lru_cache(maxsize=256)
def _line(name: str, line: int, modules: int) -> ScriptLine | None:
    """``modules``, the number of those that are loaded, makes a file that is imported later found."""
    files = _files(name)
    code = linecache.getline(files[0], line).strip()[:CODE_MAX] if len(files) == 1 else ""
    return ScriptLine(files[0], line, code) if code else None


def _files(name: str) -> list[str]:
    loaded = (module.__dict__.get("__file__") for module in list(sys.modules.values()) if type(module) is ModuleType)
    named = {os.path.abspath(file) for file in loaded if isinstance(file, str) and Path(file).name == name}
    return sorted(file for file in named if not any(part in file for part in INSTALLED))
