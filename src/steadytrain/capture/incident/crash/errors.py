"""Converts an error of the script and its causes into bounded and redacted text."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from steadytrain.storage.redaction import redact_text

CHAIN_MAX = 16
FRAMES_MAX = 24
MESSAGE_CHARACTERS_MAX = 8_000
LINE_CHARACTERS_MAX = 400
_OWN_FOLDER = str(Path(__file__).parents[3])


def chain(error: BaseException) -> list[BaseException]:
    """``error`` first, then its causes."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found and len(found) < CHAIN_MAX:
        found.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return found


def message(error: BaseException) -> str:
    """The error's message, without secrets."""
    return redact_text(str(error))[:MESSAGE_CHARACTERS_MAX]


def error_facts(error: BaseException) -> dict[str, Any]:
    """Type, message, and the innermost lines of the traceback; the last line raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    return {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": message(error),
        "frames": [
            {
                "file": frame.filename,
                "line": frame.lineno,
                "function": frame.name,
                "code": redact_text(frame.line or "")[:LINE_CHARACTERS_MAX],
            }
            for frame in frames[-FRAMES_MAX:]
        ],
    }


def live_frames(error: BaseException) -> list[FrameType]:
    """The frames of the traceback, innermost first. They keep their variables alive."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [frame for frame in reversed(frames) if not _is_ours(frame.f_code.co_filename)][:FRAMES_MAX]


def _is_ours(filename: str) -> bool:
    return filename.startswith((_OWN_FOLDER, "<frozen")) or filename.endswith("/runpy.py")
