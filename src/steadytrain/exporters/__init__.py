"""One file per tool that a run can be sent to, with the queue and the process between the run and the tool.

An exporter computes no value and never blocks the training thread.

Importing this package imports no tool.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from steadytrain.core.errors import UsageError
from steadytrain.core.extras import pip_install
from steadytrain.exporters.exporter import known_tools

AUTO = "auto"
NONE = "none"
TO_DEFAULT: tuple[str, ...] = (AUTO,)
"""The default: join a run that the script has open, and start none."""


def parse_to(text: str) -> tuple[str, ...]:
    """The names in ``--to a,b``.

    Raises:
        UsageError: as :func:`check_to`.
    """
    return check_to([name.strip() for name in text.split(",")])


def check_to(names: Sequence[str]) -> tuple[str, ...]:
    """``names`` without repetitions, if all can be used here. Imports nothing.

    Raises:
        UsageError: an unknown name, ``none`` beside another, or a tool that is not installed.
    """
    if isinstance(names, str):
        names = names.split(",")
    tools = known_tools() if set(names) - {AUTO, NONE} else {}  # their files are read for their names
    for name in names:
        if name not in (*tools, AUTO, NONE):
            raise UsageError(f"{name!r}: no exporter has that name; one of {', '.join((*tools, AUTO, NONE))}")
        if name in tools and not _is_installed(tools[name].requires):
            raise UsageError(f"{name!r}: not installed here; {pip_install(tools[name].install or name)}")
    if NONE in names and len(set(names)) > 1:
        raise UsageError(f"{','.join(names)!r}: none excludes all others")
    return tuple(dict.fromkeys(names))


def _is_installed(module: str) -> bool:
    if not module:
        return True
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None  # a plain folder (wandb/, with its runs) does not count
