"""One step of an optimizer told once: torch calls its hooks for each ``step`` method that it has wrapped.

It wraps that of each class whose instances were made. An optimizer whose ``step`` calls its parent's is therefore
hooked twice in one step, if the script has made a plain instance of the parent too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch


class OutermostSteps:
    """``begins`` and ``ends`` of the outermost call. Both must be called by a hook that torch's wrapper calls."""

    def __init__(self, begins: Callable[..., Any], ends: Callable[..., Any]) -> None:
        self._begins = begins
        self._ends = ends
        self._outermost: dict[int, int] = {}
        """Of each optimizer that is in a step, or that left its last one by an exception: the wrapper's frame."""

    def begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        frame = sys._getframe(2)
        outermost = self._outermost.get(id(optimizer))
        if outermost is not None and _is_inside(frame, outermost):
            return None
        self._outermost[id(optimizer)] = id(frame)
        return self._begins(optimizer, args, kwargs)

    def ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        frame = id(sys._getframe(2))
        if self._outermost.get(id(optimizer), frame) != frame:
            return
        self._outermost.pop(id(optimizer), None)
        self._ends(optimizer, args, kwargs)


def _is_inside(frame: FrameType, outermost: int) -> bool:
    above = frame.f_back
    while above is not None:
        if id(above) == outermost and above.f_code is frame.f_code:
            return True
        above = above.f_back
    return False
