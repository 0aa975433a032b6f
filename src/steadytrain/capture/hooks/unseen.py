"""Keeps our own tensor operations out of the script's dispatch modes, function modes and profilers.

A mode that counts operations, or changes them, must get those of the script alone; so must a profiler's table.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

from steadytrain.core.torch_names import MissingNameError
from steadytrain.core.torch_private import (
    DISPATCH_DEPTH,
    FUNCTION_DEPTH,
    NO_MODES,
    NO_TORCH_FUNCTION,
    PROFILED,
    PROFILES,
)


class Unseen:
    """``with unseen:`` around our own operations. Nested blocks count once; without modes it costs a microsecond.

    No code of the script may run inside: it would miss its own modes.
    """

    def __init__(self) -> None:
        self.hides = True
        """Off in a replay: its tracer is a mode that begins and ends inside our own work."""
        self._depth = 0
        self._off: ExitStack | None = None

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1 and self.hides and _watched():
            self._off = _hidden()

    def __exit__(self, *exception: Any) -> None:
        self._depth -= 1
        if not self._depth and self._off is not None:
            off, self._off = self._off, None
            off.close()


def _watched() -> bool:
    return bool(DISPATCH_DEPTH.get()() or FUNCTION_DEPTH.get()() or _profiles())


def _profiles() -> bool:
    try:
        return bool(PROFILES.now())  # a plain flag, which torch sets anew
    except MissingNameError:
        return False


def _hidden() -> ExitStack:
    with ExitStack() as stack:
        stack.enter_context(NO_TORCH_FUNCTION.get()())
        if DISPATCH_DEPTH.get()():
            stack.enter_context(NO_MODES())
        if _profiles():
            with suppress(MissingNameError):
                PROFILED.get()(False)
                stack.callback(PROFILED.get(), True)
        return stack.pop_all()
