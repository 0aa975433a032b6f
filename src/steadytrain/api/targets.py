"""The target of a command or function: a run or an incident, by path or name, or as an opened run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.grouping.gravest import gravest_incident, incident_or_run
from steadytrain.storage.bundle import is_bundle
from steadytrain.storage.run_folder import Run
from steadytrain.storage.run_search import find
from steadytrain.storage.tape_files import find_recording

Target = str | Path | Run | None
"""A run folder, an incident bundle, the name of a run, an opened run; None: the newest run."""


def path_of(target: Target, runs_dir: str | Path) -> Path:
    """The run folder or bundle of the target.

    Raises:
        UsageError: the target does not exist.
    """
    if isinstance(target, Run):
        return target.path
    return find(str(target) if target else None, Path(runs_dir))


def incident_or_run_of(target: Target, runs_dir: str | Path) -> Path:
    """The bundle (for a run, its most severe incident), or the run itself if it has none.

    Raises:
        UsageError: there is no such run or incident.
    """
    return incident_or_run(path_of(target, runs_dir))


def recorded_source(target: Target, runs_dir: str | Path) -> Path:
    """The bundle, or a run that has no incident but a tape.

    Raises:
        UsageError: there is no such run or incident, or a run with neither.
    """
    path = incident_or_run_of(target, runs_dir)
    return path if is_bundle(path) or find_recording(path).chunks else gravest_incident(path)


def needs_torch(what: str) -> None:
    """Check that PyTorch is installed.

    Raises:
        UsageError: it is not, and ``what`` needs it.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"{what}; `steadytrain show` works without it")
