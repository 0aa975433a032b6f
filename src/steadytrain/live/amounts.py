"""Durations, bytes and rates in few characters."""

from __future__ import annotations

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
GIB = 1 << 30


def duration(seconds: float) -> str:
    """Such as ``0.3 s``, ``45 s``, ``3 h 12 min``, ``2 d 4 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for place, (size, unit) in enumerate(_UNITS[:-1]):
        if seconds >= size:
            whole = int(seconds // size)
            smaller, name = _UNITS[place + 1]
            rest = int(seconds % size // smaller)
            return f"{whole:,} {unit} {rest} {name}" if rest else f"{whole:,} {unit}"
    return f"{seconds:.0f} s"


def pace(steps_per_s: float) -> str:
    """Such as ``12 steps/s``, or ``14 s a step`` where there is less than one a second."""
    return f"{steps_per_s:.3g} steps/s" if steps_per_s >= 1 else f"{duration(1 / steps_per_s)} a step"


def gigabytes(size: float) -> str:
    return f"{size / GIB:.3g}"


def share(value: float) -> str:
    """A share in percent, with enough digits that a small one is not zero."""
    percent = 100 * value
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"
