"""Writes the state right before an incident's step, which its bundle holds, as a snapshot to start from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from steadytrain.capture.snapshots.safetensors_writer import write_tensors
from steadytrain.checkpoints.safetensors_files import tensors_of
from steadytrain.storage.bundle import write_json
from steadytrain.storage.state_before import MOMENTS, NO_SCALERS, WEIGHTS, newest_before, optimizer_trees
from steadytrain.storage.tape_files import (
    MODEL_LEAD,
    SNAPSHOT_FORMAT,
    SNAPSHOT_VERSION,
    STATE_FILE,
    STATE_TENSORS,
    Recording,
    Snapshot,
    read_snapshot,
    snapshot_name,
)


def with_state_before(recording: Recording, bundle: Path, step: int, folder: Path) -> Recording:
    """The recording with one more snapshot: the state of ``bundle`` after ``step``, written to ``folder``.

    Args:
        step: as :func:`steadytrain.storage.state_before.step_before` gave it.

    Raises:
        UsageError: the newest snapshot is damaged.
        OSError: the disk cannot store the snapshot.
    """
    newest = newest_before(recording, step + 1)
    assert newest is not None
    like = read_snapshot(newest)
    place = folder / snapshot_name(step)
    place.mkdir(parents=True, exist_ok=True)
    tensors = {MODEL_LEAD + name: value for name, value in tensors_of(bundle / WEIGHTS).items()}
    tensors |= tensors_of(bundle / MOMENTS)
    digests = write_tensors(place / STATE_TENSORS, tensors, go_on=lambda: True)
    document = {
        "format": SNAPSHOT_FORMAT,
        "version": SNAPSHOT_VERSION,
        "step": step,
        "stream": like["stream"],
        "optimizers": optimizer_trees(bundle),
        "scalers": NO_SCALERS,
        "aliases": {},
        "frozen": like["frozen"],
        "not_kept": [],
        "digests": digests,
        "tensor_bytes": (place / STATE_TENSORS).stat().st_size,
    }
    write_json(place / STATE_FILE, document)
    return replace(recording, snapshots=(*recording.snapshots, Snapshot(place, step)))
