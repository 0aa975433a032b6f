"""``steadytrain.checklist``: what of the method was done about a run or incident."""

from __future__ import annotations

from pathlib import Path

from steadytrain.api.targets import Target, path_of
from steadytrain.method.ticks import Checklist, checklist_of
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT


def checklist(target: Target = None, *, runs_dir: str | Path = RUNS_DIR_DEFAULT) -> Checklist:
    """What was done about a run or an incident: reproduction, data tests, telemetry, precision, tuning.

    Reads only what is on disk. Needs no PyTorch.

    Args:
        target: a bundle, or a run (its most severe incident first, then its others); None: the newest run.
        runs_dir: folder of run folders.

    Raises:
        UsageError: there is no such run or incident, or it is damaged.

    Example:
        >>> checklist = steadytrain.checklist("runs/stopped")
        >>> [tick.name for tick in checklist.ticks]
        ['reproduction', 'data', 'telemetry', 'precision', 'tuning']
    """
    return checklist_of(path_of(target, runs_dir))
