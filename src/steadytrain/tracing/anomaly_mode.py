"""Stacks in the nodes of backward, so that its operations have a line, beside the script's own anomaly mode.

torch has one anomaly mode for the process. A trace may begin before a ``set_detect_anomaly`` block of the script and
end inside it, or the other way round: each must find the mode again as it left it. While ours is on, the functions of
torch that read and set the mode therefore speak of the script's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def without_stacks_printed() -> Iterator[None]:
    """A backward that fails inside is our own attempt: anomaly mode would print a warning about it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Error detected in")
        yield


class BackwardStacks:
    """Keeps anomaly mode on from ``begin`` to ``end``. A script that turns it on inside has its NaN checks too."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._mode = (False, True)

    def begin(self) -> None:
        """NaN checks that are on stay off until ``end``: they must not raise at the NaN under investigation."""
        self._mode = (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
        torch.set_anomaly_enabled(True, False)
        for name, function in (
            ("is_anomaly_enabled", lambda: self._mode[0]),
            ("is_anomaly_check_nan_enabled", lambda: self._mode[1]),
            ("set_anomaly_enabled", self._set),
        ):
            self._functions[name] = getattr(torch, name)
            setattr(torch, name, function)

    def end(self) -> None:
        """The script's mode is on again, as it has set it last. A second call does nothing."""
        if not self._functions:
            return
        for name, function in self._functions.items():
            setattr(torch, name, function)
        self._functions = {}
        torch.set_anomaly_enabled(*self._mode)

    def _set(self, mode: bool, check_nan: bool = True) -> None:
        self._mode = (mode, check_nan)
        self._functions["set_anomaly_enabled"](True, mode and check_nan)
