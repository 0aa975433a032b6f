"""Fail open: an error of our own is reported once, disables the part that failed, and never reaches the run.

An exception of the script that surfaces inside steadytrain (``script_errors``) is no such error and passes through.

Our own tests must see such errors. :func:`raise_own_errors` makes the guard raise them; in a process that a test
launches, the environment variable ``STEADYTRAIN_RAISE_OWN_ERRORS`` does so.
"""

from __future__ import annotations

import contextlib
import functools
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from steadytrain.capture.hooks.script_errors import is_of_script, is_of_the_gpu

Tell = Callable[[str], None]
SAID_MAX = 300
"""Characters of an error's first line in a report."""

RAISE_VARIABLE = "STEADYTRAIN_RAISE_OWN_ERRORS"


class Guard:
    """Wraps entry points: an exception inside is reported once per place and swallowed."""

    reraise = bool(os.environ.get(RAISE_VARIABLE))

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._told: set[str] = set()
        self._parts: dict[str, _Part] = {}
        self.warnings: list[str] = []
        self.gpu_failed = False
        """Whether a GPU was seen to have failed: the script ends at its next call."""

    def wrap(self, function: Callable[..., Any], otherwise: Any = None, *, what: str = "") -> Callable[..., Any]:
        """``function``, changed to return ``otherwise`` if it raises an ``Exception``; ``what`` failed then."""

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.report(what or function.__name__, error)
                return otherwise

        return guarded

    def around(self, function: Callable[..., Any], original: Callable[..., Any], *, what: str) -> Callable[..., Any]:
        """``function(original, *args, **kwargs)``, which calls ``original(*args, **kwargs)`` once on its way.

        Whatever ``function`` does, ``original`` is called exactly once, and its result or its exception arrives.
        """

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            once = _Once(original)
            try:
                return function(once, *args, **kwargs)
            except Exception as error:
                if error is once.error:
                    raise
                self.report(what, error)
            if not once.called:
                return original(*args, **kwargs)
            if once.error is not None:
                raise once.error
            return once.result

        return guarded

    def part(self, name: str) -> _Part:
        """A block whose ``Exception`` is reported and suppressed."""
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = _Part(self, name)
        return part

    def report(self, place: str, error: Exception) -> None:
        """Report ``error`` once per place; the run continues. No frame of the failed call stays alive.

        Called where ``error`` is handled: it raises an exception of the script again. A GPU that failed is no error of
        ours: the script's next call raises it.
        """
        if is_of_the_gpu(error):
            error.__traceback__, self.gpu_failed = None, True
            return
        if Guard.reraise or is_of_script(error):
            raise error
        frame = traceback.extract_tb(error.__traceback__)[-1:]
        # The frames hold the script's tensors. From Python 3.12 on, `part` forms a reference cycle with the error.
        error.__traceback__ = None
        if place in self._told:
            return
        self._told.add(place)
        where = f" at {frame[0].filename.rsplit('/', 1)[-1]}:{frame[0].lineno}" if frame else ""
        with contextlib.suppress(Exception):  # the error's own text may fail, or the stream that it is printed to
            self._say(place, error, where)

    def warn(self, text: str) -> None:
        """Say and record ``text`` once, a warning that is no failure."""
        if text not in self._told:
            self._told.add(text)
            self.warnings.append(text)
            self._tell(f"warning: {text}")

    def _say(self, place: str, error: Exception, where: str) -> None:
        said = str(error).strip().partition("\n")[0][:SAID_MAX]  # torch lists all backends in further lines
        warning = f"{place} failed ({type(error).__name__}: {said}){where}; training goes on without it"
        self.warnings.append(warning)
        self._tell(f"warning: {warning}")


class _Once:
    """Calls ``original`` and remembers what came of it."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original
        self.called = False
        self.result: Any = None
        self.error: BaseException | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.called = True
        try:
            self.result = self._original(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise
        return self.result


class _Part:
    """A step enters two dozen of these; a generator would take four times as long. It has no state of its own."""

    __slots__ = ("_guard", "_name")

    def __init__(self, guard: Guard, name: str) -> None:
        self._guard = guard
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or is_of_script(error):
            return False
        self._guard.report(self._name, error)
        return True


@contextmanager
def raise_own_errors() -> Iterator[None]:
    """For tests: raise our own errors instead of suppressing them."""
    before, Guard.reraise = Guard.reraise, True
    try:
        yield
    finally:
        Guard.reraise = before
