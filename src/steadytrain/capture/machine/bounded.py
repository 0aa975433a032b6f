"""Calls into a driver that may never come back: made in a thread of their own, and waited for only so long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class NoAnswerError(Exception):
    """A call did not come back in time; nothing more is called."""


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
    """One daemon thread. A call that hangs keeps that thread and nobody else; it ends with the process."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call[object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        self.lost = False

    def call(self, function: Callable[[], T], *, wait_s: float) -> T:
        """The result of ``function``, or its exception.

        Raises:
            NoAnswerError: it did not come back within ``wait_s``, now or in an earlier call.
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
