"""Find active runs of other tools that the script started. Imports no tool: a tool that is not loaded has no active
run.
"""

from __future__ import annotations

import sys

from steadytrain.exporters.exporter import ActiveRun, known_tools, load_tool


def active_runs() -> list[ActiveRun]:
    """The runs that are active now, at most one per tool."""
    found = [_active(name) for name, described in known_tools().items() if described.loaded in sys.modules]
    return [run for run in found if run is not None]


_unusable: set[str] = set()
"""Tools whose exporter failed to import here. They are not tried again, to save time."""


def _active(name: str) -> ActiveRun | None:
    if name in _unusable:
        return None
    try:
        exporter = load_tool(name)
    except Exception:  # an unsupported version of the tool
        _unusable.add(name)
        return None
    try:
        return exporter.active()
    except Exception:  # an unsupported version of the tool: its run is unknown
        return None
