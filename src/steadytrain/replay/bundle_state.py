"""Loads a bundle's state into a freshly launched model and prepares the loop rerun of the failing step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steadytrain.capture.incident.context import IncidentContext, LoopRerun, Rehearsal
from steadytrain.capture.incident.freeze import named_state, random_state
from steadytrain.capture.step.input_recorder import AutocastState, MicroBatch, RandomState, map_tensors
from steadytrain.checkpoints.safetensors_files import tensors_of
from steadytrain.core.bounded_files import DOCUMENT_BYTES_MAX, read_json
from steadytrain.core.incident import Finding
from steadytrain.replay.own_steps import own_steps, steps_before
from steadytrain.storage.bundle import Bundle
from steadytrain.storage.tree import decode
from steadytrain.tracing.investigator import ScriptLoopRerun

LEAD_IN_S_MAX = 120.0
NEW_PROCESS = "the recorded command was launched again and repeated the step, in a new process"


class BundleRehearsal(Rehearsal):
    """Rehearses the step of a bundle with its weights, random state and batches."""

    def __init__(
        self,
        bundle: Bundle,
        done: Callable[[Finding], None],
        *,
        rerun: Callable[[IncidentContext], LoopRerun] | None = None,
    ) -> None:
        self._bundle = bundle
        self._done = done
        self._rerun = rerun or (lambda incident_context: ScriptLoopRerun(incident_context, method=NEW_PROCESS))
        self._after_step = lead_in_steps(bundle)

    def begins_after(self, step: int) -> bool:
        return step >= self._after_step

    def prepare(self, incident_context: IncidentContext) -> Finding | LoopRerun:
        if incident_context.no_lap is not None:
            return Finding(None, f"not searched: {incident_context.no_lap}")
        mismatch = load_weights(incident_context.roots, tensors_of(self._bundle.path / "model.safetensors"))
        if mismatch is not None:
            return Finding(None, f"not searched: the launched script builds another model: {mismatch}")
        device = next((parameter.device for parameter in incident_context.parameters.values()), torch.device("cpu"))
        calls, fetched = read_batches(self._bundle.path, self._bundle.incident.step, device)
        before = read_random(self._bundle.path)
        modules = [batch.module for batch in incident_context.micro_batches]
        if calls and not modules:
            return Finding(None, "not searched: the launched script did not call its model before its first step")
        lost = sorted({name for call in calls for name in call["not_kept"]})
        if lost:
            return Finding(None, f"not searched: inputs of type {', '.join(lost)} are not in the bundle")
        recorded = [
            micro_batch(call, modules[min(number, len(modules) - 1)], before if number == 0 else None)
            for number, call in enumerate(calls)
        ]
        return self._rerun(replace(incident_context, micro_batches=recorded, fetched=fetched))

    def done(self, finding: Finding) -> None:
        self._done(finding)


def lead_in_steps(bundle: Bundle) -> int:
    """The number of steps that the launched script computes itself before the recorded one.

    If all of them fit into ``LEAD_IN_S_MAX``, it computes all, so that the script's own counters (schedules, data
    phases)
    match the recorded run. Otherwise it computes one, and only the recorded weights, random state and batch match.
    """
    seconds = bundle.window.series("step_s").values
    step_s = float(np.median(seconds)) if len(seconds) else float("inf")
    before = bundle.incident.step - 1 - steps_before(bundle.environment)
    return own_steps(before, step_s=step_s, lead_s=LEAD_IN_S_MAX).wanted


def load_weights(roots: Sequence[nn.Module], tensors: Mapping[str, Tensor]) -> str | None:
    """Overwrites parameters and buffers by name. Returns a description of the first mismatch, None if all fit."""
    places = named_state(roots)
    for name in sorted(places.keys() ^ tensors.keys()):
        return f"{name} is only in the {'script' if name in places else 'bundle'}"
    for name, tensor in places.items():
        if tensor.shape != tensors[name].shape or tensor.dtype != tensors[name].dtype:
            return f"{name} is {tensor.dtype}{list(tensor.shape)}, not {tensors[name].dtype}{list(tensors[name].shape)}"
    with torch.no_grad():
        for name, tensor in places.items():
            tensor.copy_(tensors[name])
    return None


def read_batches(path: Path, step: int, device: torch.device) -> tuple[list[dict[str, Any]], list[tuple[int, Any]]]:
    """The model calls of ``step`` with their tensors on ``device``, and the loader batches as (data set, batch)
    pairs."""
    document = read_json(path / "batches.json", bytes_max=DOCUMENT_BYTES_MAX)
    tensors = tensors_of(path / "batches.safetensors")
    calls = []
    for call in document["calls"]:
        if call["step"] == step:
            calls.append({**decode(call["call"], tensors), "not_kept": call["not_kept"]})
    for call in calls:
        call["args"] = map_tensors(call["args"], lambda tensor: tensor.to(device))
        call["kwargs"] = map_tensors(call["kwargs"], lambda tensor: tensor.to(device))
    fetched = [
        (fetch["dataset"], decode(fetch["batch"], tensors)) for fetch in document["fetches"] if not fetch["not_kept"]
    ]
    return calls, fetched


def read_random(path: Path) -> RandomState | None:
    """The random state at the end of the last forward before the step; None if the bundle has none."""
    tree = read_json(path / "rng.json", bytes_max=DOCUMENT_BYTES_MAX)
    states = decode(tree, tensors_of(path / "rng.safetensors"))
    return random_state(states["before_step"]) if "before_step" in states else None


def micro_batch(call: Mapping[str, Any], module: nn.Module, before: RandomState | None) -> MicroBatch:
    """A recorded call in the form of a live call to ``module``."""
    autocast = call["autocast"]
    return MicroBatch(
        module=module,
        args=tuple(call["args"]),
        kwargs=dict(call["kwargs"]),
        random=random_state(call["random"]),
        random_before=before,
        autocast=AutocastState(
            devices=tuple(autocast["devices"]),
            enabled=tuple((device, _dtype(name)) for device, name in autocast["enabled"]),
            cache=autocast["cache"],
        ),
        size_bytes=0,
        samples=0,
        tokens=None,
        frames=(),
    )


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name.removeprefix("torch."))
    assert isinstance(dtype, torch.dtype)
    return dtype
