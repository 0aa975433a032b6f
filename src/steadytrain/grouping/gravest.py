"""Find the gravest incident of a run. Not here: how a run is found (``storage.run_search``)."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Incident
from steadytrain.core.model import SEVERITIES, worst
from steadytrain.grouping.catalog import declared
from steadytrain.storage.bundle import is_bundle, open_for_report
from steadytrain.storage.ranks_of_run import faulty_first
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.tape_files import find_recording


def gravity(incident: Incident) -> tuple[bool, int, bool, int]:
    """Sort key of a run's incidents: non-finite ones first, then by severity, then by step.

    Within one severity a rise comes before a lack of progress, because a few steps show whether a trial removes it.
    """
    severity = worst([symptom.severity for symptom in incident.symptoms])
    slow = bool(incident.symptoms) and all(declared(one.name).aim == "progress" for one in incident.symptoms)
    grade = len(SEVERITIES) if severity is None else len(SEVERITIES) - 1 - SEVERITIES.index(severity)
    return incident.kind != "nonfinite", grade, slow, incident.step


def gravest_incident(path: Path) -> Path:
    """``path`` itself if it is a bundle, else the gravest incident of the run there (see :func:`gravity`).

    Raises:
        UsageError: the run has no incident, or none that can be opened.
    """
    found = incident_or_run(path)
    if not is_bundle(found):
        raise UsageError(f"{path}: this run has no incident; {_instead(path)}")
    return found


def _instead(path: Path) -> str:
    """What can be done with a run that has no incident, in a line."""
    name = shlex.quote(str(path))
    wiring = f"`steadytrain diagnose {name}` looks at its wiring, `steadytrain show {name}` shows what it has"
    if find_recording(path).chunks:
        return (
            f"its tape can be done again: `steadytrain replay {name}`, `steadytrain locate {name} --step N`; {wiring}"
        )
    return f"no tape of its steps was kept (--keep-rewind keeps one of a run that ends well); {wiring}"


def _incidents(rank: Path) -> tuple[Path, ...]:
    """Those of another rank; none if its folder is damaged."""
    try:
        return open_run(rank).incidents
    except UsageError:
        return ()


def incident_or_run(path: Path) -> Path:
    """Like :func:`gravest_incident`, but returns ``path`` for a run without incidents. Of several ranks with equal
    ones, that of the rank where the step went wrong."""
    if is_bundle(path):
        return path
    run = open_run(path)
    incidents = faulty_first(run, [*run.incidents, *(one for rank in run.ranks for one in _incidents(rank))])
    if not incidents:
        return path
    opened, why = [], None
    for incident in incidents:
        try:
            opened.append(open_for_report(incident))
        except UsageError as error:
            why = error
    if not opened:
        assert why is not None
        raise why
    return min(opened, key=lambda bundle: (gravity(bundle.incident), _has_finite_loss(bundle.incident))).path


def _has_finite_loss(incident: Incident) -> bool:
    """Of several ranks, a bad gradient reaches all, and a bad loss is only where the step went wrong."""
    return all(math.isfinite(loss) for loss in incident.losses)
