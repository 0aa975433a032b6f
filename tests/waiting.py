"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S_MAX = 120.0
"""After so long it is taken to never happen. Nothing is proved by it, so it may be long."""


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not happened():
        assert time.monotonic() < deadline, "not within the time of a test"
        time.sleep(0.005)
