"""The error for the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class UsageError(ValueError):
    """Bad input: what was wrong, the offending value, and what to do next, in one line.

    The command line prints the text and ends with status 2; it never shows a traceback for it.

    Example:
        >>> try:
        ...     steadytrain.load_run("no-such-run")
        ... except steadytrain.UsageError as error:
        ...     print(error)
        no-such-run: no such run or incident, here or under steadytrain-runs; `steadytrain runs` lists the runs
    """


def refuse_newer(path: Path, version: Any, known: int, *, what: str = "") -> None:
    """Raise a ``UsageError`` where ``version`` of the format ``what`` is none, or newer than the ``known`` one."""
    if not isinstance(version, int) or version > known:
        kind = f"{what} format" if what else "format"
        raise UsageError(
            f"{path}: {kind} version {version} is newer than this steadytrain reads ({known}); upgrade steadytrain"
        )
