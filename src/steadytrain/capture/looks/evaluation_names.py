"""Says whether the script names what it evaluates with now a validation or a test set."""

from __future__ import annotations

import linecache
import re
from types import FrameType

from steadytrain.capture.step.script_frames import is_user, running_frames

LINES_MAX, FRAMES_MAX = 60, 4
"""Lines above a call in which its loop is looked for, and functions of the script that are read."""

PART = r"(?:loader|set|data|dataset|batch|batches|iter|dl|ds|x)"
WORD = rf"(?:(?:val|valid|validation|test|holdout|heldout){PART}?|dev_?{PART})"
NAMED = re.compile(rf"(?<![a-z0-9]){WORD}(?![a-z0-9])")
"""``dev`` alone is a device."""

NAME = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*\()")
TEXT = re.compile(r"([fF]?)(\"[^\"]*\"|'[^']*')")


def named_as_held_out() -> str:
    """The name of a held-out set in the lines that run now, or in the head of a loop around them, or ""."""
    frames = [one for one in running_frames() if is_user(one)][:FRAMES_MAX]
    for frame in frames:
        for line in (linecache.getline(frame.f_code.co_filename, frame.f_lineno), *_loops(frame)):
            for name in NAME.findall(_code(line)):
                if NAMED.search(name.lower()):
                    return str(name)
    return ""


def _code(line: str) -> str:
    """``line`` without comments and strings; of an f-string its expressions stay."""
    return TEXT.sub(lambda one: " ".join(re.findall(r"\{([^}]*)", one[2])) if one[1] else "", line).split("#")[0]


def _loops(frame: FrameType) -> list[str]:
    """The heads of the loops around the line that ``frame`` runs, innermost first."""
    file, number, first = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_firstlineno
    line = linecache.getline(file, number)
    indent, found = _indent(line), []
    for above in range(number - 1, max(first, number - LINES_MAX) - 1, -1):
        text = linecache.getline(file, above)
        if text.strip() and _indent(text) < indent:
            indent = _indent(text)
            if text.lstrip().startswith("for "):
                found.append(text)
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
