"""Guards what the script or a trainer calls in ``attach`` and ``integrations``: an error of ours never reaches them.

Wrong use (:class:`UsageError`) and a refused update (``RunStopped``) are answers, not errors of ours; they pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from steadytrain.attach.messages import tell
from steadytrain.attach.process_watch import attached
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.core.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

_outside = Guard(tell)
"""For errors while nothing is watched."""


def report(what: str, error: Exception) -> None:
    """Report an error of ours once: in the open watch, whose run then shows it, or on stderr alone."""
    own = attached()
    (own.watcher.guard if own is not None else _outside).report(what, error)


def guest(what: str, otherwise: Any = None) -> Callable[[Function], Function]:
    """Decorates an entry point: if it fails, ``what`` is reported as failed, and it returns ``otherwise``."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except UsageError:
                raise
            except Exception as error:
                report(what, error)
                return otherwise

        return guarded  # type: ignore[return-value]

    return decorate


def guest_callbacks(what: str) -> Callable[[Class], Class]:
    """Decorates a callback class: each public method that it defines is an entry point, new ones too."""

    def decorate(own: Class) -> Class:
        for name, value in list(vars(own).items()):
            if callable(value) and not name.startswith("_") and not isinstance(value, type):
                setattr(own, name, guest(what)(value))
        return own

    return decorate
