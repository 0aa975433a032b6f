"""What stays known of an optimizer that the script has dropped, until its stream is released.

A watch holds no optimizer: it is freed when the script drops it, and its model with it. But the facts of the last
training, and the bundle of a last batch without an update, need its groups and its state. They are held instead, and a
stand-in is made of them. Not here: when a stream is released (``stream_assignment``).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

PARTS = ("defaults", "state", "param_groups")
"""What ``torch.optim.Optimizer`` itself pickles. None of torch's optimizers is referred to by its parts."""

_INSIDE = ("steadytrain.capture.", "steadytrain.detection.", "steadytrain.exporters.", "steadytrain.storage.")
_LAUNCH = "steadytrain.capture.hooks.launch"


class Remains:
    """The parts of one optimizer, and a weak reference to it.

    An optimizer that keeps its parts elsewhere (a wrapper) is held itself, until :meth:`loosen`.

    Args:
        gone: called when the optimizer is freed, with the reference.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, gone: Callable[[weakref.ref[torch.optim.Optimizer]], None]
    ) -> None:
        self.reference = weakref.ref(optimizer, gone)
        self._kind = type(optimizer)
        self._parts: dict[str, Any] = {}
        self._whole: torch.optim.Optimizer | None = None
        self.renew(optimizer)

    def are_of(self, optimizer: torch.optim.Optimizer) -> bool:
        return self.reference() is optimizer

    def renew(self, optimizer: torch.optim.Optimizer) -> None:
        """Hold the current parts; ``load_state_dict`` replaces them."""
        own = vars(optimizer)
        try:
            if own["state"] is not self._parts.get("state") or own["param_groups"] is not self._parts["param_groups"]:
                self._parts = {name: own[name] for name in PARTS}
        except KeyError:
            self._parts, self._whole = {}, optimizer

    def loosen(self) -> torch.optim.Optimizer | None:
        """The optimizer, if it was held itself; it no longer is."""
        whole, self._whole = self._whole, None
        return whole

    def stand_in(self) -> Callable[[], torch.optim.Optimizer] | None:
        """Returns an optimizer of the same class with the same parts; None if they were not its own."""
        if not self._parts:
            return None
        made: torch.optim.Optimizer = object.__new__(self._kind)
        vars(made).update(self._parts)
        torch.optim.Optimizer.__setstate__(made, {})
        return lambda: made


def called_by_us() -> bool:
    """Whether the caller of the weak reference that called our caller is steadytrain: the collector runs anywhere."""
    frame: FrameType | None = sys._getframe(3)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(_INSIDE) and name != _LAUNCH and name != __name__:
            return True
        frame = frame.f_back
    return False
