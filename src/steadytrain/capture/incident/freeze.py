"""Writes an incident bundle from the data in memory. Tensors are stored as safetensors, never as pickle."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from steadytrain.capture.hooks.model_discovery import named_tensors, plain_name
from steadytrain.capture.step.input_recorder import AutocastState, MicroBatch, RandomState
from steadytrain.core.incident import Incident
from steadytrain.core.model import Window
from steadytrain.core.torch_private import IS_WRAPPER
from steadytrain.storage.bundle import SCALARS_NAME, seal, write_json
from steadytrain.storage.documents import write_text
from steadytrain.storage.origin import with_origin
from steadytrain.storage.redaction import redact_text
from steadytrain.storage.segments import write_window
from steadytrain.storage.tree import encode, opaque_types

FETCHED_BYTES_MAX = 64 << 20

STATE_FILES = ("model.safetensors", "optimizer.json", "optimizer.safetensors")


@dataclass(frozen=True)
class RecordedInputs:
    """The inputs of the last steps: ``batches`` by step, the failing step's ``fetched`` by data set, random states."""

    batches: Sequence[tuple[int, list[MicroBatch]]] = ()
    fetched: Sequence[tuple[int, Any]] = ()
    random_states: Mapping[str, RandomState] = field(default_factory=dict)


def write_bundle(
    folder: Path,
    *,
    incident: Incident,
    window: Window,
    environment: Mapping[str, Any],
    inputs: RecordedInputs,
    diff: str | None,
    scalars: Window | None = None,
) -> None:
    """Write everything except the state, and seal the bundle. Raises ``OSError`` if the disk cannot store it.

    ``scalars``: more steps than in ``window``, without their tensors.
    """
    folder.mkdir(parents=True, exist_ok=False)
    write_json(folder / "incident.json", incident.to_json())
    write_json(folder / "environment.json", with_origin(environment))
    write_window(folder / "window", window)
    if scalars is not None:
        write_window(folder / SCALARS_NAME, scalars)
    _write_batches(folder, inputs.batches, inputs.fetched)
    _write_tree(folder / "rng", {name: random_tree(state) for name, state in inputs.random_states.items()})
    if diff:
        write_text(folder / "source.diff", diff)
    seal(folder)


def write_state(
    folder: Path, roots: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], names: Mapping[int, str]
) -> None:
    """Write the current weights, buffers and optimizer state; reseal the bundle. A failure leaves no partial file."""
    try:
        _save_file(
            {redact_text(name): tensor for name, tensor in model_tensors(roots).items()}, folder / "model.safetensors"
        )
        tree, tensors = optimizer_tree(optimizers, names)
        write_json(folder / "optimizer.json", tree)
        _save_file(tensors, folder / "optimizer.safetensors")
        seal(folder, *STATE_FILES)
    except Exception:
        for name in STATE_FILES:
            (folder / name).unlink(missing_ok=True)
        raise


def state_bytes(roots: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> int:
    """The size in bytes that :func:`write_state` would write, without writing it."""
    model = [*(p for root in roots for p in root.parameters()), *(b for root in roots for b in root.buffers())]
    moments = [
        value
        for optimizer in optimizers
        for state in optimizer.state.values()
        if isinstance(state, Mapping)
        for value in state.values()
    ]
    return sum(tensor.numel() * tensor.element_size() for tensor in [*model, *moments] if is_tensor(tensor))


def free_bytes(folder: Path) -> int:
    """Room for ``folder``, which may be gone: then where it would be made anew."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    return shutil.disk_usage(there).free


def model_tensors(roots: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Copies of parameters and buffers on the host, named as by :func:`named_state`."""
    return {name: savable(tensor) for name, tensor in named_state(roots).items()}


def named_state(roots: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Parameters and buffers that can be written, by plain name; with several roots, the root's number comes first."""
    return {name: tensor for name, tensor in _all_state(roots) if is_tensor(tensor)}


def left_out(roots: Sequence[nn.Module]) -> list[str]:
    """Parameters and buffers that cannot be written: on the meta device, or with values in their own storage format."""
    return [name for name, tensor in _all_state(roots) if not is_tensor(tensor)]


def _all_state(roots: Sequence[nn.Module]) -> Iterator[tuple[str, Tensor]]:
    for number, root in enumerate(roots):
        lead = f"{number}:" if len(roots) > 1 else ""
        yield from ((lead + plain_name(name), tensor) for name, tensor in named_tensors(root))


def optimizer_tree(
    optimizers: Sequence[torch.optim.Optimizer], names: Mapping[int, str]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Hyper-parameters and state of the optimizers; state is keyed by parameter name. The tensors are copies."""
    tree, tensors = live_optimizer_tree(optimizers, names)
    return tree, {key: savable(tensor) for key, tensor in tensors.items()}


def live_optimizer_tree(
    optimizers: Sequence[torch.optim.Optimizer], names: Mapping[int, str], *, lead: str = ""
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Like :func:`optimizer_tree`, with the optimizers' own tensors, whose names begin with ``lead``."""
    trees, tensors = [], {}
    for number, optimizer in enumerate(optimizers):
        groups = [
            {
                "parameters": [names.get(id(parameter), "?") for parameter in group["params"]],
                "settings": {key: value for key, value in group.items() if key != "params"},
            }
            for group in optimizer.param_groups
        ]
        state = {
            names.get(id(parameter), f"?{at}"): dict(s) if isinstance(s, Mapping) else s
            for at, (parameter, s) in enumerate(optimizer.state.items())
        }
        value = {"class": type(optimizer).__qualname__, "groups": groups, "state": state}
        tree, found = encode(value, is_tensor, prefix=f"{lead}optimizer{number}")
        trees.append(tree)
        tensors.update(found)
    return {"optimizers": trees}, tensors


def random_tree(state: RandomState) -> dict[str, Any]:
    """A random state as plain values and tensors."""
    version, internal, gauss = state.python
    numpy_state = state.numpy
    return {
        "python": {"version": version, "internal": torch.tensor(internal, dtype=torch.int64), "gauss": gauss},
        "numpy": _numpy_tree(numpy_state) if numpy_state is not None else None,
        "torch": state.torch,
        "cuda": list(state.cuda),
    }


def random_state(tree: Mapping[str, Any]) -> RandomState:
    """The inverse of :func:`random_tree`."""
    python = tree["python"]
    numpy_state = tree["numpy"]
    return RandomState(
        python=(python["version"], tuple(python["internal"].tolist()), python["gauss"]),
        numpy=_numpy_state(numpy_state) if numpy_state is not None else None,
        torch=tree["torch"],
        cuda=tuple(tree["cuda"]),
    )


def autocast_tree(state: AutocastState) -> dict[str, Any]:
    enabled = [[device, str(dtype)] for device, dtype in state.enabled]
    return {"devices": list(state.devices), "enabled": enabled, "cache": state.cache}


def _write_batches(
    folder: Path, batches: Sequence[tuple[int, list[MicroBatch]]], fetched: Sequence[tuple[int, Any]]
) -> None:
    """Write the model's inputs in the last steps, and the loaders' batches for the failing one (within a bound)."""
    documents: list[dict[str, Any]] = []
    fetches: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    size_bytes = 0
    for number, (dataset, batch) in enumerate(fetched):
        tree, found = encode(batch, is_tensor, prefix=f"fetch{number}")
        size_bytes += sum(tensor.numel() * tensor.element_size() for tensor in found.values())
        if size_bytes > FETCHED_BYTES_MAX:
            break
        tensors.update({key: savable(tensor) for key, tensor in found.items()})
        fetches.append({"dataset": dataset, "not_kept": opaque_types(tree), "batch": tree})
    for step, micro_batches in batches:
        for number, batch in enumerate(micro_batches):
            lead = f"step{step}.{number}"
            value = {
                "args": batch.args,
                "kwargs": batch.kwargs,
                "random": random_tree(batch.random),
                "autocast": autocast_tree(batch.autocast),
            }
            tree, found = encode(value, is_tensor, prefix=lead)
            tensors.update({key: savable(tensor) for key, tensor in found.items()})
            documents.append(
                {
                    "step": step,
                    "micro_batch": number,
                    "module": type(batch.module).__qualname__,
                    "changed_after_use": batch.changed_since(),
                    "not_kept": opaque_types(tree),
                    "call": tree,
                }
            )
    document = {"format": "steadytrain.batches", "version": 1, "calls": documents, "fetches": fetches}
    write_json(folder / "batches.json", document)
    _save_file(tensors, folder / "batches.safetensors")


def _write_tree(path: Path, value: Any) -> None:
    tree, tensors = encode(value, is_tensor, prefix=path.name)
    write_json(path.with_suffix(".json"), tree)
    _save_file({redact_text(key): savable(tensor) for key, tensor in tensors.items()}, path.with_suffix(".safetensors"))


def _save_file(tensors: dict[str, Tensor], path: Path) -> None:
    """safetensors' own function, without the wrapper that tells of the script's checkpoints.

    Its module is not imported above: a script may import it first, it imports torch, and then a watch begins.
    """
    import safetensors.torch

    save: Any = safetensors.torch.save_file
    while hasattr(save, "__wrapped__"):
        save = save.__wrapped__
    save(tensors, path)


def savable(tensor: Tensor) -> Tensor:
    """A plain, contiguous copy on the host that shares no memory (tied weights are written twice)."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.to("cpu", copy=True).contiguous()


def is_tensor(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.device.type == "meta" or value.is_quantized or value.is_nested:
        return False
    if is_lazy(value):
        return False
    return hasattr(value, "to_local") or not IS_WRAPPER(value)


def _numpy_tree(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "bit_generator": state["bit_generator"],
        "key": torch.from_numpy(np.asarray(state["state"]["key"]).astype(np.int64)),
        "pos": int(state["state"]["pos"]),
        "has_gauss": int(state["has_gauss"]),
        "gauss": float(state["gauss"]),
    }


def _numpy_state(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "bit_generator": tree["bit_generator"],
        "state": {"key": tree["key"].numpy().astype(np.uint32), "pos": tree["pos"]},
        "has_gauss": tree["has_gauss"],
        "gauss": tree["gauss"],
    }
