"""The state right before an incident's step, which a bundle holds beside its recording.

A trial that changes only what happens within that step can start there. From the last snapshot it would have to train
all steps up to it first. Not here: writing that state as a snapshot (``steadytrain.replay.state_before``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import DOCUMENT_BYTES_MAX, read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Incident
from steadytrain.core.own_errors import own
from steadytrain.storage.nonfinite_tensors import holds_nonfinite
from steadytrain.storage.tape_files import Recording, Snapshot, read_snapshot

WEIGHTS, OPTIMIZERS, MOMENTS = "model.safetensors", "optimizer.json", "optimizer.safetensors"
NO_SCALERS: dict[str, list[Any]] = {"list": []}


def step_before(bundle: Path, incident: Incident, recording: Recording) -> int | None:
    """The step before that of the incident, if its state can be restored from the bundle; else None.

    The first bad operation must be known and have had finite inputs. The weights must be finite: what the script did
    between two steps may have spoilt them. The state must be all that a snapshot would hold: of the same optimizers,
    without a gradient scaler and without other optimizers that take turns with them.
    """
    located = incident.located
    known = located is not None and not any(operand.nan or operand.inf for operand in located.inputs)
    if located is None or not known:
        return None
    try:
        if not located.module and holds_nonfinite(bundle / WEIGHTS):
            return None
    except own(UsageError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return held_before(bundle, incident, recording)


def held_before(bundle: Path, incident: Incident, recording: Recording) -> int | None:
    """The step before that of the incident, if the bundle holds all that a snapshot after it would hold, sound or
    not; else None."""
    if incident.kind != "nonfinite" or recording.chunk_of(incident.step) is None:
        return None
    if not all((bundle / name).is_file() for name in (WEIGHTS, OPTIMIZERS, MOMENTS)):
        return None
    before = newest_before(recording, incident.step)
    try:
        whole = before is not None and _is_whole(bundle, read_snapshot(before))
    except own(UsageError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return incident.step - 1 if whole else None


def newest_before(recording: Recording, step: int) -> Snapshot | None:
    """The newest snapshot of a state before ``step``."""
    return next((shot for shot in reversed(recording.snapshots) if shot.step < step), None)


def optimizer_trees(bundle: Path) -> list[Any]:
    """The optimizers of a bundle, as a snapshot's document has them."""
    trees: list[Any] = read_json(bundle / OPTIMIZERS, bytes_max=DOCUMENT_BYTES_MAX)["optimizers"]
    return trees


def _is_whole(bundle: Path, snapshot: dict[str, Any]) -> bool:
    same = [_class(tree) for tree in optimizer_trees(bundle)] == [_class(tree) for tree in snapshot["optimizers"]]
    alone = snapshot["scalers"] == NO_SCALERS and not snapshot.get("others")
    return same and alone and not snapshot["not_kept"]


def _class(tree: Any) -> Any:
    return dict(tree["dict"])["class"]
