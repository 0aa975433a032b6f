"""One line of a listing: what it says of a run, from ``run.json`` and a few rows of the index.

A folder may hold thousands of runs, so a summary decodes no symptom and no action. Not here: which runs there are
(``run_search``), and all that a run holds (``run_folder``).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from steadytrain.core.model import SEVERITIES, Severity, worst
from steadytrain.storage.left_overs import ended_or_state
from steadytrain.storage.run_folder import (
    bundles_inside,
    description_started,
    open_index,
    read_description,
    steps_of,
)

INCIDENTS_MAX = 10_000


@dataclass(frozen=True)
class RunSummary:
    """One line of ``steadytrain runs``, read from the index and ``run.json`` only."""

    name: str
    path: Path
    started: str
    command: str
    ended: str | None
    steps: int
    worst: Severity | None
    incidents: int
    state: str
    """``ended``, or what is known of a run that did not record it."""


def summary_of(path: Path) -> RunSummary:
    """The summary of the run in a folder.

    Raises:
        UsageError: not a run folder, damaged, or of a newer format.
    """
    description = read_description(path)
    with open_index(path) as index:
        ended = index.execute("SELECT value FROM facts WHERE name = 'ended'").fetchone()
        ended = None if ended is None else json.loads(ended[0])
        found = {name for (name,) in index.execute("SELECT DISTINCT severity FROM symptoms LIMIT 10")}
        bundles = [name for (name,) in index.execute(f"SELECT path FROM incidents LIMIT {INCIDENTS_MAX}")]
        unknown = found.difference(SEVERITIES)
        if unknown:
            raise ValueError(f"a severity that is none: {str(min(map(str, unknown)))[:40]}")
    argv = description.get("argv")
    ended = ended if isinstance(ended, str) else None
    return RunSummary(
        name=str(description.get("name") or os.path.basename(os.path.abspath(path))),
        path=path,
        started=description_started(description),
        command=" ".join(map(str, argv)) if isinstance(argv, list) else "",
        ended=ended,
        steps=steps_of(path),
        worst=worst([severity for severity in SEVERITIES if severity in found]),
        incidents=len(bundles_inside(path, bundles)),
        state=ended_or_state(ended, description),
    )
