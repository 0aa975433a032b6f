"""Finds a run of another tool that the script itself has begun. Imports no tool: what is not loaded is not active."""

from __future__ import annotations

import sys

from steadytrain.exporters.exporter import ActiveRun, known_tools, load_tool


def active_runs() -> list[ActiveRun]:
    """The runs that are active now, at most one a tool."""
    found = [_active(name) for name, described in known_tools().items() if described.loaded in sys.modules]
    return [run for run in found if run is not None]


_unusable: set[str] = set()
"""Tools whose exporter could not be imported here; to try it again at every look would cost the run its time."""


def _active(name: str) -> ActiveRun | None:
    if name in _unusable:
        return None
    try:
        exporter = load_tool(name)
    except Exception:  # another version of theirs
        _unusable.add(name)
        return None
    try:
        return exporter.active()
    except Exception:  # another version of theirs: then there is nothing that we could know of
        return None
