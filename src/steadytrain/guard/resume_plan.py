"""From which state a run goes on after an incident, with which fixes: checked before it starts. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Incident
from steadytrain.grouping.catalog import declared
from steadytrain.grouping.gravest import gravest_incident
from steadytrain.guard.fixes import Fix, find_fix
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_search import find, run_around
from steadytrain.storage.tape_files import Recording, Snapshot, find_recording, read_snapshot


@dataclass(frozen=True)
class ResumePlan:
    """``snapshot`` is the state to load, ``incident`` the bundle that holds it, and ``continues`` the run before, as
    ``--continues`` gives it."""

    incident: Path
    recording: Recording
    snapshot: Snapshot
    continues: dict[str, Any]
    fixes: tuple[Fix, ...]


def plan_resume(target: str, wanted: Sequence[str], runs_dir: Path) -> ResumePlan:
    """What ``--resume-from`` and ``--with`` ask for.

    Raises:
        UsageError: there is no such incident, it has no state from before it, or a fix cannot be made.
    """
    bundle = gravest_incident(find(target, runs_dir)).resolve()
    incident = open_bundle(bundle).incident
    recording = find_recording(bundle)
    onset = onset_of(incident)
    snapshot = next((shot for shot in reversed(recording.snapshots) if shot.step < onset), None)
    if snapshot is None:
        raise UsageError(
            f"{bundle}: it holds no snapshot from before step {onset}, so no run can go on from it; "
            "--continues goes on from a checkpoint of your own"
        )
    if read_snapshot(snapshot)["stream"] != "main":
        raise UsageError(f"{bundle}: its snapshot is not of the run's first optimizer, so no run can go on from it")
    run = run_around(bundle)
    if run is None:
        raise UsageError(f"{bundle}: it does not lie in its run's folder, whose steps the run would continue")
    continues = {"run": run.name, "run_dir": str(run.path.resolve()), "step": snapshot.step}
    fixes = tuple(find_fix(text, bundle) for text in wanted)
    names = [fix.name for fix in fixes]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--with: {name} is named {names.count(name)} times; name each intervention once")
    return ResumePlan(bundle, recording, snapshot, continues, fixes)


def onset_of(incident: Incident) -> int:
    """The first step of the trouble. What a run does wrong from its start, without harm to its weights, is none."""
    harmful = (one.first_step for one in incident.symptoms if declared(one.name).aim != "progress")
    return min([incident.step, *harmful])
