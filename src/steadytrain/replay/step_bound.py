"""Ends a launched script that takes far more steps than were asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from steadytrain.capture.step.observers import StepObserver

    Observer = TypeVar("Observer", bound=StepObserver)

OPTIMIZERS_MAX = 64
"""Steps are counted over all optimizers of the script; it may use this many in each step."""

STEPS_SPARE = 1000
TOO_MANY_STATUS = 1
_exit = os._exit


def gates_bound(steps: int) -> int:
    """The bound for a launch that needs ``steps`` steps."""
    return OPTIMIZERS_MAX * steps + STEPS_SPARE


def bounded(observer: Observer, tell: Callable[[str], None]) -> Observer:
    """``observer``, changed to end this process after ``observer.gates_max`` gates."""
    bound, gate, seen = observer.gates_max, observer.gate, [0]
    if bound is None:
        return observer

    def counting(*args: Any) -> None:
        seen[0] += 1
        if seen[0] > bound:
            tell(f"the script made {bound} optimizer steps and did not reach the last one that was asked for")
            _exit(TOO_MANY_STATUS)
        gate(*args)

    observer.gate = counting  # type: ignore[method-assign, assignment]
    return observer
