"""``STEADYTRAIN=0`` switches everything off: scripts run as if steadytrain were not there."""

from __future__ import annotations

import os

from steadytrain.core.errors import UsageError

VARIABLE = "STEADYTRAIN"
_OFF = ("0", "off", "false", "no")
_ON = ("", "1", "on", "true", "yes")


def is_off() -> bool:
    """Whether the environment switches steadytrain off.

    Raises:
        UsageError: the variable has a value that says neither on nor off.
    """
    value = os.environ.get(VARIABLE, "")
    word = value.strip().lower()
    if word not in (*_OFF, *_ON):
        raise UsageError(f"{VARIABLE}={value}: must be 0, which switches everything off, or 1, or not set")
    return word in _OFF
