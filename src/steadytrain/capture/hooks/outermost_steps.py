"""Reports each optimizer step once, although torch may call its hooks several times per step.

torch wraps the ``step`` method of each class that has had an instance. If an optimizer's ``step`` calls its parent's
``step``, and the script has also created an instance of the parent, the hooks run twice in one step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch


class OutermostSteps:
    """Passes on only the outermost ``begins`` and ``ends``. Torch's wrapper must call a hook that calls them."""

    def __init__(self, begins: Callable[..., Any], ends: Callable[..., Any]) -> None:
        self._begins = begins
        self._ends = ends
        self.nested = False
        """Whether a step has called another one of the same optimizer."""

        self._outermost: dict[int, int] = {}
        """The ``id`` of the wrapper's frame, for each optimizer inside a step or whose last step raised."""

    def begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        frame = sys._getframe(2)
        outermost = self._outermost.get(id(optimizer))
        if outermost is not None and _is_inside(frame, outermost):
            self.nested = True
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
