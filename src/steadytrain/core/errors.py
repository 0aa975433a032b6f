"""The one error that is meant for the user's eyes."""

from __future__ import annotations


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
