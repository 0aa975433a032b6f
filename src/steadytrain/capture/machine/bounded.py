"""Calls driver functions that may never return: a separate thread makes the call, and the wait has a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class NoAnswerError(Exception):
    """A call did not return in time. No further calls are made."""


class _Call(Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        self.function = function
        self.done = threading.Event()
        self.result: T | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.result = self.function()
        except Exception as error:
            self.error = error
        self.done.set()


class BoundedCaller:
    """One daemon thread. A call that hangs blocks only this thread, which ends with the process."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call[object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        self.lost = False

    def call(self, function: Callable[[], T], *, wait_s: float) -> T:
        """The result of ``function``, or its exception.

        Raises:
            NoAnswerError: this call or an earlier one did not return within ``wait_s`` seconds.
        """
        call = _Call(function)
        if not self.lost:
            self._calls.put(call)  # type: ignore[arg-type]
            self.lost = not call.done.wait(wait_s)
        if self.lost:
            raise NoAnswerError
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[return-value]

    def close(self, *, wait_s: float) -> None:
        """End the thread, unless it hangs."""
        self._calls.put(None)
        if not self.lost:
            self._thread.join(wait_s)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
