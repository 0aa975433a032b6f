"""Reads states that steadytrain wrote: incident bundles and snapshots of a run.

A bundle's state is that before the update of its step. Both contain all buffers, including non-persistent ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from steadytrain.checkpoints.assembling import Loose, assemble
from steadytrain.checkpoints.safetensors_files import tensors_of
from steadytrain.compare.checkpoint_contents import CheckpointContents
from steadytrain.compare.differences import OWN
from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError
from steadytrain.storage.bundle import open_for_report
from steadytrain.storage.run_folder import Run
from steadytrain.storage.tape_files import (
    MODEL_LEAD,
    STATE_FILE,
    STATE_TENSORS,
    Snapshot,
    find_snapshots,
    read_snapshot,
)
from steadytrain.storage.tree import Opaque, decode

BUNDLE_FILES = ("model.safetensors", "optimizer.json", "optimizer.safetensors", "incident.json")
JSON_BYTES_MAX = 256 << 20


def claims(path: Path) -> bool:
    return path.is_dir() and (_is_bundle(path) or ((path / STATE_FILE).is_file() and (path / STATE_TENSORS).is_file()))


def read(path: Path, names: Sequence[str] | None) -> CheckpointContents:
    """The state in a bundle or a snapshot.

    Raises:
        UsageError: it is damaged, or of a newer format.
    """
    return _bundle(path) if _is_bundle(path) else _snapshot(path)


def states_of(run: Run, step: int) -> Iterator[CheckpointContents]:
    """The run's own states after ``step``.

    Raises:
        UsageError: a state is damaged.
    """
    for snapshot in find_snapshots(run.path):
        if snapshot.step == step:
            yield _snapshot(snapshot.folder)
    for incident in run.incidents:
        if _is_bundle(incident) and open_for_report(incident).incident.step == step + 1:
            yield _bundle(incident)


def _is_bundle(path: Path) -> bool:
    return all((path / name).is_file() for name in BUNDLE_FILES)


def _bundle(path: Path) -> CheckpointContents:
    incident = open_for_report(path).incident  # verifies the checksums
    file = path / "optimizer.json"
    try:
        trees = read_json(file, bytes_max=JSON_BYTES_MAX)["optimizers"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{file}: not the state of an optimizer ({str(error)[:160]})") from None
    return _held(path, incident.step - 1, tensors_of(path / "model.safetensors"), trees, path / "optimizer.safetensors")


def _snapshot(path: Path) -> CheckpointContents:
    step = int(path.name.rpartition("-")[2]) if path.name.rpartition("-")[2].isdigit() else 0
    document = read_snapshot(Snapshot(path, step))
    tensors = tensors_of(path / STATE_TENSORS)
    aliases = document.get("aliases") or {}
    tensors |= {name: tensors[other] for name, other in aliases.items() if other in tensors}
    weights = {name.removeprefix(MODEL_LEAD): value for name, value in tensors.items() if name.startswith(MODEL_LEAD)}
    return _held(path, int(document["step"]), weights, document["optimizers"], tensors)


def _held(
    path: Path, step: int, weights: Mapping[str, Tensor], trees: Any, tensors: Path | Mapping[str, Tensor]
) -> CheckpointContents:
    values = tensors_of(tensors) if isinstance(tensors, Path) else tensors
    first = decode(trees[0], values) if trees else {"groups": [], "state": {}}
    groups = [{**_plain(group["settings"]), "params": group["parameters"]} for group in first["groups"]]
    optimizer = {"param_groups": groups, "state": first["state"]}
    loose = Loose(weights=weights, optimizer=optimizer, position={"global_step": step})
    if len(trees) > 1:
        loose.notes.append(f"{len(trees)} optimizers: the first was compared")
    return assemble(str(path), OWN, loose, None)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if not isinstance(value, Opaque)}
