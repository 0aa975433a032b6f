"""Restores weights, buffers, optimizer state and scalers in a freshly launched process, and compares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.incident.freeze import named_state
from steadytrain.capture.snapshots.digests import digest
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.replay.recorded_steps import OtherUpdate, RecordedState, RecordedStep, Tensors
from steadytrain.storage.tree import Opaque


@torch.no_grad()
def restore_state(
    state: RecordedState, stream: Stream, scalers: Sequence[Any], others: Sequence[Stream] = ()
) -> tuple[str | None, list[str]]:
    """Restores everything. Returns a mismatch (then the replay must stop) or None, and notes.

    ``others`` are the streams of the launched script that take turns with ``stream``.
    """
    notes = [f"not in the snapshot: {name}" for name in state.not_kept]
    wrong = state.damaged() or _restore_model(state, stream) or _restore_optimizers(state, stream)
    for part in state.others:
        if wrong is None:
            wrong = _restore_other(part, others)
    recorded = state.scalers
    if wrong is None and len(recorded) != len(scalers):
        wrong = f"the launched script has {len(scalers)} gradient scalers, not {len(recorded)}"
    if wrong is None:
        for scaler, values in zip(scalers, recorded, strict=True):
            scaler.load_state_dict(values)
    for one in (stream, *others):
        one.writes.restored(one)
    return wrong, notes


def _restore_other(part: RecordedState, streams: Sequence[Stream]) -> str | None:
    stream = next((one for one in streams if one.name == part.stream), None)
    if stream is None:
        return f"the launched script has made no step of {part.stream} yet, whose state belongs to the snapshot"
    return _restore_model(part, stream) or _restore_optimizers(part, stream)


def _restore_model(state: RecordedState, stream: Stream) -> str | None:
    places = named_state(list(stream.roots()))
    recorded = state.model
    for name in sorted(places.keys() ^ recorded.keys() - set(state.not_kept)):
        return f"the launched script builds another model: {name} is only in the {_side(name in places)}"
    for name, place in places.items():
        values = state.model_tensor(name)
        if place.shape != values.shape or place.dtype != values.dtype:
            return (
                f"the launched script builds another model: {name} is {place.dtype}{list(place.shape)}, "
                f"not {values.dtype}{list(values.shape)}"
            )
        place.data.copy_(values)
        if isinstance(place, nn.Parameter) and place.is_floating_point():
            place.requires_grad_(name not in state.frozen)
    return None


def _restore_optimizers(state: RecordedState, stream: Stream) -> str | None:
    recorded = state.optimizers
    if len(recorded) != len(stream.optimizers):
        return f"the launched script steps {len(stream.optimizers)} optimizers together, not {len(recorded)}"
    names = stream.model.names if stream.model else {}
    for optimizer, values in zip(stream.optimizers, recorded, strict=True):
        if type(optimizer).__qualname__ != values["class"]:
            return (
                f"the launched script has the optimizer {type(optimizer).__qualname__}, not {values['class']}: if it "
                "replaces it later, let it make its own steps until then (--lead-s)"
            )
        if len(optimizer.param_groups) != len(values["groups"]):
            return f"its optimizer has {len(optimizer.param_groups)} parameter groups, not {len(values['groups'])}"
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = names.get(id(parameter), "?")
                if name in values["state"]:
                    on_device = bool(group.get("capturable") or group.get("fused"))
                    _restore_entries(optimizer, parameter, values["state"][name], counters_on_device=on_device)
                else:
                    optimizer.state.pop(parameter, None)
    return None


def _restore_entries(
    optimizer: torch.optim.Optimizer, parameter: Tensor, recorded: Any, *, counters_on_device: bool
) -> None:
    if not isinstance(recorded, Mapping):
        return
    own = optimizer.state[parameter]
    for key, value in recorded.items():
        there = own.get(key)
        if isinstance(value, Opaque):
            continue
        if not isinstance(value, Tensor):
            own[key] = value
        elif isinstance(there, Tensor) and there.shape == value.shape and there.dtype == value.dtype:
            there.copy_(value)
        else:
            own[key] = _new_entry(parameter, value, counters_on_device=counters_on_device)
    for key in own.keys() - recorded.keys():
        del own[key]


def _new_entry(parameter: Tensor, value: Tensor, *, counters_on_device: bool) -> Tensor:
    """Creates an entry that the launched optimizer does not have yet, on the device that torch's optimizers use."""
    if value.dim() == 0 and parameter.dim() > 0:
        return value.to(parameter.device if counters_on_device else "cpu", copy=True)
    if value.shape == parameter.shape:
        return torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    return value.to(parameter.device, copy=True)


@torch.no_grad()
def restore_gate(step: RecordedStep, stream: Stream) -> None:
    """Sets the hyper-parameters of the recorded step, and scales the gradients as an intervention did.

    Where it was the first step of a new optimizer, a script that has left out steps still has the old one.
    """
    for optimizer in stream.optimizers if step.without_state and not stream.begins_anew else ():
        optimizer.state.clear()
    restore_groups(step.value(step.document["groups"]), stream)
    for parameter in stream.parameters if step.gradient_factor != 1.0 else ():
        if parameter.grad is not None:
            parameter.grad.mul_(step.gradient_factor)


@torch.no_grad()
def restore_other_gate(update: OtherUpdate, stream: Stream) -> None:
    """The same as ``restore_gate``, for another optimizer that updates within the recorded step."""
    restore_groups(update.groups, stream)
    for parameter in stream.parameters if update.gradient_factor != 1.0 else ():
        if parameter.grad is not None:
            parameter.grad.mul_(update.gradient_factor)


def restore_groups(groups: Sequence[Sequence[Mapping[str, Any]]], stream: Stream) -> None:
    """Sets the hyper-parameters to their values at the gate of the recorded step."""
    for optimizer, recorded in zip(stream.optimizers, groups, strict=False):
        for group, values in zip(optimizer.param_groups, recorded, strict=False):
            for key, value in values.items():
                if isinstance(value, Opaque):
                    continue
                if isinstance(value, Tensor) and isinstance(group.get(key), Tensor):
                    with torch.no_grad():
                        group[key].copy_(value)
                else:
                    group[key] = value


def state_differences(
    state: RecordedState, stream: Stream, others: Sequence[Stream] = ()
) -> Iterator[tuple[str, str, str]]:
    """Tensors of model and optimizers that differ from ``state``: name, recorded digest, present digest."""
    for part in state.others:
        for other in others:
            if other.name == part.stream:
                yield from state_differences(part, other)
    yield from differences(state.model, named_state(list(stream.roots())))
    names = {name: id_ for id_, name in (stream.model.names if stream.model else {}).items()}
    for optimizer, recorded in zip(stream.optimizers, state.optimizer_digests, strict=False):
        own = {id(parameter): values for parameter, values in optimizer.state.items()}
        for name, entries in recorded["state"].items():
            here = own.get(names.get(name, -1), {})
            if not isinstance(entries, Mapping):
                continue
            for key, there in entries.items():
                value = here.get(key)
                if isinstance(value, Tensor) and isinstance(there, str) and digest(value) != there:
                    yield f"{name} ({key})", there, digest(value)


def weight_differences(recorded: Tensors, stream: Stream) -> Iterator[tuple[str, str, str]]:
    """The parameters that differ from ``recorded``: name, recorded digest, present digest."""
    here = named_state(list(stream.roots()))
    parameters = {id(parameter) for root in stream.roots() for parameter in root.parameters()}
    weights = {name: tensor for name, tensor in here.items() if name in recorded and id(tensor) in parameters}
    return differences({name: digest(recorded[name]) for name in weights}, weights)


def differences(recorded: Mapping[str, str], tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, str, str]]:
    """The tensors whose digest differs from the recorded one."""
    for name, tensor in tensors.items():
        if name in recorded and (now := digest(tensor)) != recorded[name]:
            yield name, recorded[name], now


def _side(in_script: bool) -> str:
    return "script" if in_script else "snapshot"
