"""The error for the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class UsageError(ValueError):
    """Bad input. The text says in one line what was wrong, the offending value, and what to do next.

    The command line prints the text without a traceback and exits with status 2.

    Examples:
        >>> try:
        ...     steadytrain.load_run("no-such-run")
        ... except steadytrain.UsageError as error:
        ...     print(error)
        no-such-run: no such run or incident, here or under steadytrain-runs; `steadytrain runs` lists the runs
    """

    def _render_traceback_(self) -> list[str]:
        """The line that IPython prints in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def refuse_newer(path: Path, version: Any, known: int, *, what: str = "") -> None:
    """Raise a ``UsageError`` if ``version`` of the format ``what`` is not a version, or newer than ``known``."""
    if not isinstance(version, int) or version > known:
        kind = f"{what} format" if what else "format"
        raise UsageError(
            f"{path}: {kind} version {version} is newer than this steadytrain reads ({known}); upgrade steadytrain"
        )
