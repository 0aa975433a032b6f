"""Where a run is in another tool, kept in its run folder so that `steadytrain export` finds it again.

``RUN/sent-to-TOOL.json`` holds ids alone, no address: a run folder may come from a stranger, and the tool is the one
that the environment of the reader names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from steadytrain.core.bounded_files import read_json
from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.exporters.exporter import Exporter, Run
from steadytrain.storage.documents import as_json, write_text

PLACE_BYTES_MAX = 1 << 16
TEXT_CHARACTERS_MAX = 200


def keep_place(run: Run, exporter: Exporter) -> None:
    """Keep where the exporter has its run. A disk that is full costs this file alone."""
    place = exporter.place()
    if place is not None:
        with unless_it_fails(OSError):
            write_text(_file(Path(run.folder), place["tool"]), as_json(dict(place)) + "\n")


def read_place(folder: Path, tool: str) -> Mapping[str, str] | None:
    """What an exporter of ``tool`` kept, None if the run never went there or the file is damaged."""
    try:
        found = read_json(_file(folder, tool), bytes_max=PLACE_BYTES_MAX)
    except own(OSError, ValueError):
        return None
    is_place = isinstance(found, dict) and all(isinstance(text, str) for text in found.values())
    return {name: text[:TEXT_CHARACTERS_MAX] for name, text in found.items()} if is_place else None


def _file(folder: Path, tool: str) -> Path:
    return folder / f"sent-to-{tool}.json"
