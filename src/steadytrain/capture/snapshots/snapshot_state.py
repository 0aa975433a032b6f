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
    OTHERS_LEAD,
    SNAPSHOT_FORMAT,
    SNAPSHOT_VERSION,
)
from steadytrain.storage.tree import encode

Others = Sequence[tuple[Stream, int]]
"""Streams that take turns with another one, each with the step of that one in which it first updated."""

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


def state_of(
    stream: Stream, scalers: Sequence[Any], others: Others = ()
) -> tuple[dict[str, Any], dict[str, Tensor], set[str]]:
    """The document, the live tensors by name, and the names of tensors that a forward may change.

    ``others`` are the streams that take turns with this one: their state belongs to the same loop.
    """
    parts = _Parts()
    document = {
        "format": SNAPSHOT_FORMAT,
        "version": SNAPSHOT_VERSION,
        "step": stream.step,
        "stream": stream.name,
        **parts.of(stream, ""),
        "others": [
            {"stream": one.name, "step": one.step, "joined_at": at, **parts.of(one, f"{OTHERS_LEAD}{number}/")}
            for number, (one, at) in enumerate(others)
        ],
    }
    scaler_tree, scaler_tensors = encode([scaler.state_dict() for scaler in scalers], is_tensor, prefix="scaler")
    parts.tensors.update(scaler_tensors)
    parts.moving |= scaler_tensors.keys()
    document |= {"scalers": scaler_tree, "aliases": parts.aliases, "not_kept": parts.unwritten}
    return document, parts.tensors, parts.moving


class _Parts:
    """Collects the tensors of the streams, each once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.aliases: dict[str, str] = {}
        self.moving: set[str] = set()
        self.unwritten: list[str] = []
        self._seen: dict[Any, str] = {}

    def of(self, stream: Stream, lead: str) -> dict[str, Any]:
        """Adds the tensors of ``stream`` with ``lead`` before their names, and returns its part of the document."""
        roots = list(stream.roots())
        names = stream.model.names if stream.model else {}
        tree, optimizer_tensors = live_optimizer_tree(stream.optimizers, names, lead=lead)
        parameters = {id(parameter) for root in roots for parameter in root.parameters()}
        self.unwritten += [lead + name for name in left_out(roots)]
        model = named_state(roots)
        for name, tensor in [
            *((lead + MODEL_LEAD + own, one) for own, one in model.items()),
            *optimizer_tensors.items(),
        ]:
            if self._is_new(name, tensor) and name not in optimizer_tensors and id(tensor) not in parameters:
                self.moving.add(name)
        return {
            "optimizers": tree["optimizers"],
            "frozen": [name for name, tensor in model.items() if not tensor.requires_grad],
        }

    def _is_new(self, name: str, tensor: Tensor) -> bool:
        if not can_be_written(tensor):
            self.unwritten.append(name)
            return False
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()) if _has_memory(tensor) else name
        if place in self._seen and tensor.numel():
            self.aliases[name] = self._seen[place]
            return False
        self._seen[place] = name
        self.tensors[name] = tensor
        return True


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
