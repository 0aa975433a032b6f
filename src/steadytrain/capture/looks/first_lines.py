"""The first line of the script's own files that a pattern matches."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable
from pathlib import Path


def first_line(pattern: re.Pattern[str], files: Iterable[str]) -> str:
    """File and line as ``train.py:7`` of the first match outside of a comment, "" if there is none."""
    for file in files:
        for number, text in enumerate(linecache.getlines(file), 1):
            if pattern.search(text.partition("#")[0]):
                return f"{Path(file).name}:{number}"
    return ""
