"""The entry points of installed distributions, read once, and again where something was installed since.

A run asks for those of several groups, and for each question ``importlib.metadata`` reads a file of every distribution:
5 ms for 90 of them.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from steadytrain.core.own_errors import own

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PATHS_MAX = 4
FOLDERS_MAX = 256
_DESCRIBED = (".dist-info", ".egg-info", "EGG-INFO")


def entry_points(group: str) -> list[EntryPoint]:
    """The entry points of a group."""
    changed = [(folder, _changed(folder)) for folder in sys.path]
    where = tuple(one for one in changed if _has_distributions(*one))
    return list(_all(where, tuple(map(id, sys.meta_path))).select(group=group))


@lru_cache(maxsize=PATHS_MAX)
def _all(where: tuple[tuple[str, int], ...], finders: tuple[int, ...]) -> Any:
    """Those of all groups, of which ``select`` takes some: its type is another one from Python 3.12 on."""
    from importlib import metadata  # it loads 30 modules, and few commands ask

    return metadata.entry_points()


def _changed(folder: str) -> int:
    """When something was installed into it; 0 if it is not there. "" is the working folder."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except own(OSError):
        return 0


@lru_cache(maxsize=FOLDERS_MAX)
def _has_distributions(folder: str, changed: int) -> bool:
    """Whether it may have: an archive may, the folder of a script mostly has none."""
    try:
        return any(name.endswith(_DESCRIBED) for name in os.listdir(folder or "."))
    except own(OSError):
        return changed != 0
