"""The line of a script with its neighbours, read from the script that the incident names.

A bundle may come from a stranger and name any file. So a file is read only if it is a Python file of bounded size whose
line is the one that the bundle holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steadytrain.core.bounded_files import open_regular
from steadytrain.core.errors import UsageError
from steadytrain.report.wording import clean

AROUND_LINES = 2
SOURCE_BYTES_MAX = 4 << 20
LINE_LENGTH_MAX = 200


@dataclass(frozen=True)
class SourceLine:
    """A line of a script with its number. ``marked`` says that it is the line in question."""

    number: int | None
    text: str
    marked: bool


def source_lines(file: str | None, line: int | None, code: str | None) -> tuple[SourceLine, ...]:
    """Line ``line`` of ``file`` with two lines around; ``code`` alone if the file is gone or has changed."""
    wanted = (code or "").strip()
    if not wanted:
        return ()
    alone = (SourceLine(line, clean(wanted, length_max=LINE_LENGTH_MAX), True),)
    lines = _lines(file)
    if line is None or not 1 <= line <= len(lines) or lines[line - 1].strip() != wanted:
        return alone
    near = range(max(1, line - AROUND_LINES), min(len(lines), line + AROUND_LINES) + 1)
    indent = min((_indent(lines[at - 1]) for at in near if lines[at - 1].strip()), default=0)
    return tuple(SourceLine(at, _shown(lines[at - 1], indent), at == line) for at in near)


def _lines(file: str | None) -> list[str]:
    if file is None or not file.endswith(".py"):
        return []
    try:
        with open_regular(Path(file)) as source:
            data = source.read(SOURCE_BYTES_MAX + 1)
    except (OSError, ValueError, UsageError):
        return []
    return data.decode(errors="replace").splitlines() if len(data) <= SOURCE_BYTES_MAX else []


def _indent(line: str) -> int:
    line = line.expandtabs(4)
    return len(line) - len(line.lstrip(" "))


def _shown(line: str, indent: int) -> str:
    return clean(line.expandtabs(4)[indent:].rstrip(), length_max=LINE_LENGTH_MAX)
