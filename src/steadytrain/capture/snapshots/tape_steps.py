"""The contents of one step on the tape, and the document of a chunk of steps.

Not here: the ring and the thread that writes (``tape``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steadytrain.capture.incident.freeze import autocast_tree, is_tensor, savable
from steadytrain.capture.snapshots.digests import digest
from steadytrain.capture.snapshots.random_parts import RandomTable
from steadytrain.capture.snapshots.safetensors_writer import can_be_written
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import AutocastState, MicroBatch, RandomState, map_tensors, tensors_in
from steadytrain.core.incident import Samples
from steadytrain.core.torch_private import VERSION
from steadytrain.storage.tape_files import (
    TAPE_FORMAT,
    TAPE_VERSION,
)
from steadytrain.storage.tree import encode, opaque_types

_NO_MODULE = nn.Module()


@dataclass
class Call:
    """A call of the model and the random state after it. ``batch`` does not hold the module, which another training of
    the process may long have let go; ``key`` tells it from other calls of the step."""

    batch: MicroBatch
    module_class: str
    key: int
    random_after: RandomState | None = None

    @property
    def size_bytes(self) -> int:
        """Memory for its inputs and for the random states around it."""
        after = self.random_after.size_bytes if self.random_after is not None else 0
        return self.batch.size_bytes + self.batch.random.size_bytes + after

    @staticmethod
    def of(batch: MicroBatch) -> Call:
        return Call(replace(batch, module=_NO_MODULE), type(batch.module).__qualname__, id(batch))


@dataclass(frozen=True)
class Fetch:
    """The ``number``-th batch (from 1) that a loader of ``dataset`` returned; ``batch`` has copies."""

    dataset: int
    number: int
    batch: Any
    size_bytes: int
    references: tuple[tuple[Tensor, int], ...]
    samples: Samples | None

    @property
    def changed_since(self) -> bool:
        return any(VERSION.of(tensor) != version for tensor, version in self.references)


@dataclass(frozen=True)
class OtherGate:
    """An update of another optimizer within a step, after ``calls`` calls of its models."""

    stream: str
    calls: int
    groups: list[list[dict[str, Any]]]
    measured: Measurement


@dataclass
class TapeStep:
    """The inputs of one step, as kept in the ring. ``others`` are the updates of other optimizers before its own.

    ``renewed`` has the classes of its optimizers, and whether they begin without state, if it is the first step of one
    that took the place of another. ``let_go``: it has too many calls, of which none is kept.
    """

    calls: list[Call] = field(default_factory=list)
    others: list[OtherGate] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)
    step: int = 0
    skipped: bool = False
    refused: bool = False
    renewed: dict[str, Any] = field(default_factory=dict)
    factor: float = 1.0
    evaluations: int = 0
    groups: list[list[dict[str, Any]]] = field(default_factory=list)
    losses: tuple[float, ...] = ()
    loss_scale: float | None = None
    norms: np.ndarray[Any, np.dtype[np.float32]] = field(default_factory=lambda: np.zeros(0, np.float32))
    names: tuple[str, ...] = ()
    fetched: dict[int, int] = field(default_factory=dict)
    left_out: str | None = None
    let_go: bool = False
    no_update: bool = False

    @property
    def size_bytes(self) -> int:
        calls = sum(call.size_bytes for call in self.calls)
        return calls + sum(fetch.size_bytes for fetch in self.fetches)


def chunk_document(steps: Sequence[TapeStep], random: RandomTable) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The document of a chunk, and its tensors by digest."""
    tensors: dict[str, Tensor] = {}
    places: dict[str, str] = {}
    parts: dict[str, Any] = {}

    def tree_of(value: Any, lead: str) -> Any:
        tree, found = encode(value, _is_kept, prefix=lead)
        for place, tensor in found.items():
            kept = savable(tensor) if tensor.device.type != "cpu" or type(tensor) is not Tensor else tensor
            places[place] = digest(kept)
            tensors.setdefault(places[place], kept)
        return tree

    known = _KnownTrees()
    documents = [_step_document(step, tree_of, random, parts, known) for step in steps]
    trees = {key: tree_of(part, f"random.{key}") for key, part in parts.items()}
    document = {
        "format": TAPE_FORMAT,
        "version": TAPE_VERSION,
        "first": steps[0].step,
        "last": steps[-1].step,
        "places": places,
        "random": trees,
        "steps": documents,
    }
    return document, tensors


class _KnownTrees:
    """The trees of names, hyper-parameters and autocast, which are the same in most steps: encoded once."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], Any] = {}
        self._groups: dict[str, tuple[str, Any]] = {}
        self._autocast: tuple[Any, Any] = (None, None)

    def names(self, names: tuple[str, ...]) -> Any:
        tree = self._names.get(names)
        if tree is None:
            tree = self._names[names] = encode(list(names), _is_kept)[0]
        return tree

    def autocast(self, state: AutocastState) -> Any:
        if state != self._autocast[0]:
            self._autocast = state, autocast_tree(state)
        return self._autocast[1]

    def groups(self, stream: str, groups: list[list[dict[str, Any]]], tree_of: Any, lead: str) -> Any:
        plain = [[list(group.items()) for group in some] for some in groups]
        if not all(_is_plain(value) for some in plain for group in some for _, value in group):
            return tree_of(groups, lead)
        key = repr(plain)  # tells True from 1 and 0.0 from -0.0
        last = self._groups.get(stream)
        if last is None or key != last[0]:
            last = self._groups[stream] = key, tree_of(groups, lead)
        return last[1]


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _step_document(
    step: TapeStep, tree_of: Any, random: RandomTable, parts: dict[str, Any], known: _KnownTrees
) -> dict[str, Any]:
    lead = f"s{step.step}"
    calls = []
    for number, call in enumerate(step.calls):
        batch = call.batch
        tree = tree_of(
            {"args": _without_history(batch.args), "kwargs": _without_history(batch.kwargs)}, f"{lead}c{number}"
        )
        before, after = batch.random_before, call.random_after
        calls.append(
            {
                "module": call.module_class,
                "inputs": tree,
                "not_kept": opaque_types(tree),
                "changed_after_use": batch.changed_since(),
                "autocast": known.autocast(batch.autocast),
                "random_before": random.keys(before, parts) if before is not None else None,
                "random": random.keys(batch.random, parts),
                "random_after": random.keys(after, parts) if after is not None else None,
            }
        )
    fetches = []
    for number, fetch in enumerate(step.fetches):
        tree = tree_of(fetch.batch, f"{lead}f{number}")
        fetches.append(
            {
                "dataset": fetch.dataset,
                "number": fetch.number,
                "batch": tree,
                "not_kept": opaque_types(tree),
                "changed_after_use": fetch.changed_since,
                "samples": None if fetch.samples is None else fetch.samples.to_json(),
            }
        )
    return {
        "step": step.step,
        "skipped": step.skipped,
        "left_out": step.left_out,
        "evaluations": step.evaluations,
        "losses": [float(loss).hex() for loss in step.losses],
        "loss_scale": None if step.loss_scale is None else float(step.loss_scale).hex(),
        "gradient_norms": {
            "dict": [["names", known.names(step.names)], ["norms", tree_of(torch.from_numpy(step.norms), f"{lead}g")]]
        },
        "groups": known.groups("", step.groups, tree_of, f"{lead}h"),
        "fetched": {str(dataset): count for dataset, count in step.fetched.items()},
        "calls": calls,
        "fetches": fetches,
        **(
            {"others": [_gate_document(one, tree_of, f"{lead}o{at}", known) for at, one in enumerate(step.others)]}
            if step.others
            else {}
        ),
        **({"no_update": True} if step.no_update else {}),
        **({"refused": True} if step.refused else {}),
        **({"renewed": step.renewed} if step.renewed else {}),
        **({"gradient_factor": step.factor.hex()} if step.factor != 1.0 else {}),
    }


def _gate_document(gate: OtherGate, tree_of: Any, lead: str, known: _KnownTrees) -> dict[str, Any]:
    record = gate.measured.record
    norms = tree_of(torch.from_numpy(record.gradient_norms), f"{lead}g")
    return {
        "stream": gate.stream,
        "step": record.step,
        "calls": gate.calls,
        "skipped": record.skipped,
        "refused": record.refused,
        "losses": [float(loss).hex() for loss in gate.measured.losses],
        "gradient_norms": {"dict": [["names", known.names(tuple(gate.measured.tensor_names))], ["norms", norms]]},
        "groups": known.groups(gate.stream, gate.groups, tree_of, f"{lead}h"),
        "gradient_factor": gate.measured.factor.hex(),
    }


@dataclass(frozen=True)
class _WithHistory:
    """Represents a tensor that is part of an autograd graph: a replay lets the script compute it again."""


def _without_history(value: Any) -> Any:
    def keep(tensor: Tensor) -> Any:
        return _WithHistory() if tensor.requires_grad else tensor

    return map_tensors(value, keep)


def _is_kept(value: Any) -> bool:
    return is_tensor(value) and can_be_written(value)


def plain_settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """The current hyper-parameters, with copies of tensors."""
    plain = {key: value for key, value in group.items() if key != "params"}
    return {key: value.detach().clone() if isinstance(value, Tensor) else value for key, value in plain.items()}


def copied_fetch(dataset: int, number: int, batch: Any, samples: Samples | None, *, size_bytes_max: int) -> Fetch:
    """``batch`` in its current state: copies of plain tensors, of at most ``size_bytes_max`` bytes in total."""
    tensors = list(tensors_in(batch))
    size_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    references: list[tuple[Tensor, int]] = []

    def keep(tensor: Tensor) -> Tensor:
        if size_bytes <= size_bytes_max and type(tensor) is Tensor and not tensor.requires_grad:
            return tensor.clone()
        references.append((tensor, VERSION.of(tensor)))
        return tensor

    return Fetch(dataset, number, map_tensors(batch, keep), size_bytes, tuple(references), samples)
