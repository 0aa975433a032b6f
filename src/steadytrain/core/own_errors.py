"""Catches errors of steadytrain's own calls, and lets those of the script's signal handlers through.

Python runs a signal handler between two instructions of whatever is running. A time limit of the script raises
``TimeoutError``, which is an ``OSError``: a plain ``except OSError`` of ours would swallow it, and the script would go
on past its limit. ``except own(OSError)`` and ``unless_it_fails(OSError)`` do not.
"""

from __future__ import annotations

import contextlib
import sys
from types import CodeType, FrameType, TracebackType
from typing import TypeVar

OWN_FOLDER = __file__.rpartition("/core/")[0] + "/"

ErrorT = TypeVar("ErrorT", bound=BaseException)


def own(*kinds: type[ErrorT]) -> tuple[type[ErrorT], ...]:
    """``kinds``, for ``except own(OSError):``; none if a signal handler of the script raised the error at hand."""
    error = sys.exc_info()[1]
    return () if error is not None and is_of_signal_handler(error) else kinds


class unless_it_fails(contextlib.suppress):  # noqa: N801 - reads as ``contextlib.suppress``, whose place it takes
    """As ``contextlib.suppress``, but for errors that a signal handler of the script raised."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None and is_of_signal_handler(error):
            return False
        return bool(super().__exit__(kind, error, trace))


def is_of_signal_handler(error: BaseException) -> bool:
    """Whether a signal handler of the script raised ``error``, also where a generator of ours turned its
    ``StopIteration`` into a ``RuntimeError``."""
    given: BaseException | None = error
    while given is not None:
        trace = given.__traceback__
        while trace is not None:
            if _is_signal_handler(trace.tb_frame):
                return True
            trace = trace.tb_next
        given = given.__cause__ if isinstance(given, RuntimeError) else None
    return False


def _is_signal_handler(frame: FrameType) -> bool:
    """Python calls a handler with the signal's number and the frame that it interrupted, which is its caller."""
    interrupted, code = frame.f_back, frame.f_code
    if interrupted is None or code.co_filename.startswith(OWN_FOLDER):
        return False
    given = [frame.f_locals.get(name) for name in _parameters(code)]
    held = [one for value in given for one in (value if type(value) is tuple else (value,))]
    return any(one is interrupted for one in held)


def _parameters(code: CodeType) -> tuple[str, ...]:
    has_rest = bool(code.co_flags & 0x04)  # CO_VARARGS: `def handler(*_)`
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + has_rest]
