"""Finds the script line that made a call."""

from __future__ import annotations

import functools
import linecache
import sys
from pathlib import Path
from types import FrameType

import torch

from steadytrain.capture.step.late_lines import INSTALLED

FRAMES_MAX = 64
_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parents[1])
_SURVEY = str(Path(__file__).parent)


def script_frame() -> FrameType | None:
    """The innermost frame of the script; None if steadytrain itself made the call."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(FRAMES_MAX):
        if frame is None:
            return None
        filename = frame.f_code.co_filename
        if filename.startswith(_OWN) and not filename.startswith(_SURVEY):
            return None
        if not filename.startswith((_TORCH, _OWN, "<frozen")):
            return frame
        frame = frame.f_back
    return None


def calling_frame() -> FrameType | None:
    """The frame that made a call, if it is one of the script itself and of no installed library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_SURVEY):
        frame = frame.f_back
    if frame is None or any(part in frame.f_code.co_filename for part in (_TORCH, _OWN, "<frozen", *INSTALLED)):
        return None
    return frame


def line_of(frame: FrameType) -> str:
    """The line as text: ``train.py:17: loss = ...``."""
    filename, number = frame.f_code.co_filename, frame.f_lineno
    return f"{_name_of(filename)}:{number}: {linecache.getline(filename, number, frame.f_globals).strip()}"


@functools.lru_cache(maxsize=256)
def _name_of(filename: str) -> str:
    return Path(filename).name


def runs_at(line: str) -> bool:
    """Whether the innermost frame of the script is at ``line``, as :func:`line_of` gives it; steadytrain's own frames
    are passed over."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES_MAX):
        if frame is None:
            return False
        if not frame.f_code.co_filename.startswith((_TORCH, _OWN, "<frozen")):
            return line_of(frame) == line
        frame = frame.f_back
    return False
