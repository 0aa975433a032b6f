"""The contents of a snapshot (model, optimizers and scalers, by name, each tensor once), and a snapshot in progress."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.incident.freeze import is_tensor, left_out, live_optimizer_tree, named_state
from steadytrain.capture.snapshots.safetensors_writer import can_be_written
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.torch_private import VERSION
from steadytrain.storage.tape_files import (
    MODEL_LEAD,
    SNAPSHOT_FORMAT,
    SNAPSHOT_VERSION,
)
from steadytrain.storage.tree import encode

HORIZON_MIN = 2000
"""The minimum of steps to rewind, as for ``beta2 = 0.999``: a slow fault is found hundreds of steps after it began."""


def horizon(optimizers: Sequence[torch.optim.Optimizer]) -> int:
    """The memory of the slowest second moment, ``2 / (1 - beta2)`` steps, or the minimum if that is larger."""
    betas = [group["betas"][1] for one in optimizers for group in one.param_groups if _has_betas(group)]
    slowest = max((float(beta) for beta in betas), default=0.0)
    return max(HORIZON_MIN, math.ceil(2 / (1 - slowest))) if slowest < 1.0 else HORIZON_MIN


def _has_betas(group: Mapping[str, Any]) -> bool:
    betas = group.get("betas")
    return isinstance(betas, (tuple, list)) and len(betas) > 1 and not isinstance(betas[1], Tensor)


def state_of(stream: Stream, scalers: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Tensor], set[str]]:
    """The document, the live tensors by name, and the names of tensors that a forward may change."""
    roots = list(stream.roots())
    names = stream.model.names if stream.model else {}
    tree, optimizer_tensors = live_optimizer_tree(stream.optimizers, names)
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[Any, str] = {}
    parameters = {id(parameter) for root in roots for parameter in root.parameters()}
    moving = set()
    unwritten = [*left_out(roots)]
    model_tensors = {MODEL_LEAD + name: tensor for name, tensor in named_state(roots).items()}
    for name, tensor in [*model_tensors.items(), *optimizer_tensors.items()]:
        if not can_be_written(tensor):
            unwritten.append(name)
            continue
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()) if _has_memory(tensor) else name
        if place in seen and tensor.numel():
            aliases[name] = seen[place]
            continue
        seen[place] = name
        tensors[name] = tensor
        if name not in optimizer_tensors and id(tensor) not in parameters:
            moving.add(name)
    scaler_tree, scaler_tensors = encode([scaler.state_dict() for scaler in scalers], is_tensor, prefix="scaler")
    tensors.update(scaler_tensors)
    moving |= scaler_tensors.keys()
    document = {
        "format": SNAPSHOT_FORMAT,
        "version": SNAPSHOT_VERSION,
        "step": stream.step,
        "stream": stream.name,
        "optimizers": tree["optimizers"],
        "scalers": scaler_tree,
        "aliases": aliases,
        "frozen": [name for name, tensor in named_state(roots).items() if not tensor.requires_grad],
        "not_kept": unwritten,
    }
    return document, tensors, moving


def _has_memory(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not hasattr(tensor, "to_local")


@dataclass
class SnapshotJob:
    """One snapshot in progress. ``live`` has the tensors that are not yet copied but belong to the training."""

    step: int
    folder: Path
    document: dict[str, Any]
    tensors: dict[str, Tensor]
    live: dict[str, Tensor]
    had_slot: bool
    versions: list[tuple[Tensor, int]]
    stalled_s: float = 0.0
    given_up: bool = False
    over: bool = False
    """Complete, given up or failed."""

    tidied: bool = False
    """Over, and its thread waits for the next snapshot."""

    hurried: bool = False
    whole: bool = False
    error: Exception | None = None
    busy_s: float = 0.0

    @property
    def were_changed(self) -> bool:
        """Whether the training has written to one of the live tensors."""
        return any(VERSION.of(tensor) != version for tensor, version in self.versions)
