"""Combines the parts of a checkpoint into :class:`CheckpointContents`: names the tensors and extracts plain state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.hooks.model_discovery import plain_name
from steadytrain.capture.snapshots.state_fingerprints import (
    SCHEDULER_UNTOLD,
    bytes_digest,
    hold,
    numpy_digest,
    optimizer_parts,
    python_digest,
)
from steadytrain.compare.checkpoint_contents import CheckpointContents, plain_state

_ELEMENTWISE = ("exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg")
_BUFFER = re.compile(r"(^|\.)(running_mean|running_var|num_batches_tracked|inv_freq|position_ids|masked_bias|\w*mask)$")
_DEPTH_MAX = 3
_NUMPY_WORDS = 624
_PYTHON_WORDS = 625
_CUDA_BYTES = 16


@dataclass
class Loose:
    """The parts that a reader found. None: the format does not store the part. Empty: it is missing."""

    weights: Mapping[str, Any] | None = None
    optimizer: Mapping[str, Any] | None = None
    schedulers: Sequence[Mapping[str, Any]] | None = None
    scaler: Mapping[str, Any] | None = None
    random: Mapping[str, Any] | None = None
    position: dict[str, Any] | None = None
    in_model_order: bool = True
    notes: list[str] = field(default_factory=list)


def assemble(
    path: str, kind: str, loose: Loose, names: Sequence[str] | None, *, partial: bool = False
) -> CheckpointContents:
    """Combines the parts, with every tensor named."""
    weights = None
    if loose.weights is not None:
        weights = {plain_name(str(name)): value for name, value in loose.weights.items() if isinstance(value, Tensor)}
    moments: dict[str, Tensor] = {}
    counters: dict[str, float] = {}
    settings: tuple[dict[str, Any], ...] = ()
    named = True
    if loose.optimizer:
        order = weights if loose.in_model_order else None
        groups, state, named = _by_name(_unflattened(loose.optimizer), order, weights, names)
        moments, counters, settings = optimizer_parts(groups, state)
        if not named:
            loose.notes.append(
                "the optimizer's parameters are identified by position: the checkpoint does not name them"
            )
    position = loose.position
    step = _step(position, counters)
    return CheckpointContents(
        source=path,
        kind=kind,
        step=step,
        weights=None if weights is None else hold(weights),
        moments=None if loose.optimizer is None else hold(moments),
        counters=None if loose.optimizer is None else counters,
        settings=None if loose.optimizer is None else settings,
        scheduler=None if loose.schedulers is None else tuple(map(_scheduler, loose.schedulers)),
        scaler=None if loose.scaler is None else plain_state(loose.scaler),
        random=None if loose.random is None else _random(loose.random),
        position=position,
        named=named,
        partial=partial,
        notes=tuple(loose.notes),
    )


def _scheduler(state: Mapping[str, Any]) -> dict[str, Any]:
    return plain_state(state, without=SCHEDULER_UNTOLD)


def _step(position: Mapping[str, Any] | None, counters: Mapping[str, float]) -> int | None:
    told = (position or {}).get("global_step")
    if isinstance(told, int):
        return told
    return int(max(counters.values())) if counters else None


def _by_name(
    optimizer: Mapping[str, Any],
    in_order: Mapping[str, Tensor] | None,
    weights: Mapping[str, Tensor] | None,
    names: Sequence[str] | None,
) -> tuple[list[dict[str, Any]], dict[str, Any], bool]:
    """The optimizer's groups and state under parameter names, and whether real names were found."""
    groups = [group for group in optimizer.get("param_groups") or () if isinstance(group, Mapping)]
    state = optimizer.get("state") or {}
    keys = [key for group in groups for key in group.get("params", ())]
    if keys and all(isinstance(key, str) for key in keys):
        called, named = [plain_name(key) for key in keys], True
    else:
        called, named = _called(groups, keys, state, in_order, weights, names)
    by_key = dict(zip(keys, called, strict=True))
    named_groups = [{**group, "parameters": [by_key[key] for key in group.get("params", ())]} for group in groups]
    return named_groups, {by_key.get(key, f"state of {key}"): value for key, value in state.items()}, named


def _called(
    groups: Sequence[Mapping[str, Any]],
    keys: Sequence[Any],
    state: Mapping[Any, Any],
    in_order: Mapping[str, Tensor] | None,
    weights: Mapping[str, Tensor] | None,
    names: Sequence[str] | None,
) -> tuple[list[str], bool]:
    own = [name for group in groups for name in group.get("param_names") or ()]
    if len(own) == len(keys) and own:
        return [plain_name(name) for name in own], True
    if names is not None and len(names) == len(keys):
        return list(names), True
    shapes = {key: _shape(state.get(key)) for key in keys}
    for candidate in _candidates(in_order or {}):
        if len(candidate) == len(keys) and all(
            shapes[key] in (None, tuple((weights or in_order or {})[name].shape))
            for key, name in zip(keys, candidate, strict=True)
        ):
            return candidate, True
    return [f"parameter.{at}" for at in range(len(keys))], False


def _candidates(weights: Mapping[str, Tensor]) -> Iterable[list[str]]:
    """The usual orders of a model's parameters in optimizers: the model's order, with tied ones once."""
    seen: set[tuple[int, int]] = set()
    once = []
    for name, tensor in weights.items():
        place = tensor.data_ptr(), tensor.numel()
        if tensor.is_floating_point() and (place not in seen or not tensor.numel()):
            seen.add(place)
            once.append(name)
    without_buffers = [name for name in once if not _BUFFER.search(name)]
    yield without_buffers
    yield once
    # Two groups, with and without weight decay: matrices first.
    matrices = [name for name in without_buffers if weights[name].dim() >= 2]
    yield matrices + [name for name in without_buffers if weights[name].dim() < 2]


def _shape(entries: Any) -> tuple[int, ...] | None:
    if not isinstance(entries, Mapping):
        return None
    for moment in _ELEMENTWISE:
        if isinstance(entries.get(moment), Tensor):
            return tuple(entries[moment].shape)
    return None


def _unflattened(optimizer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Nests the flat keys ``state.<parameter>.<moment>`` and ``param_groups.<parameter>.<setting>``."""
    if "state" in optimizer or not any(str(key).startswith("state.") for key in optimizer):
        return optimizer
    state: dict[str, dict[str, Any]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for key, value in optimizer.items():
        head, _, rest = str(key).partition(".")
        parameter, _, last = rest.rpartition(".")
        {"state": state, "param_groups": settings}.get(head, {}).setdefault(parameter, {})[last] = value
    groups: list[dict[str, Any]] = []
    for parameter, chosen in (settings or {name: {} for name in state}).items():
        plain = plain_state(chosen, without=("params",))
        same = next((group for group in groups if {k: v for k, v in group.items() if k != "params"} == plain), None)
        if same is None:
            groups.append({**plain, "params": [parameter]})
        else:
            same["params"].append(parameter)
    return {"state": state, "param_groups": groups}


def _random(states: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the generator states anywhere in ``states``, recognised by their form."""
    found: dict[str, str] = {}

    def walk(name: str, value: Any, depth: int) -> None:
        if isinstance(value, Tensor) and value.dtype == torch.uint8 and value.dim() == 1:
            if value.numel() > _CUDA_BYTES:
                found.setdefault("torch", bytes_digest(value))
            else:
                found.setdefault(f"cuda:{sum(key.startswith('cuda:') for key in found)}", bytes_digest(value))
        elif _is_python(value):
            found.setdefault("python", python_digest(value))
        elif isinstance(value, (tuple, list)) and len(value) == 5 and value[0] == "MT19937":
            found.setdefault("numpy", numpy_digest(value[1], value[2]))
        elif isinstance(value, Mapping) and value.get("bit_generator") == "MT19937":
            found.setdefault("numpy", numpy_digest(value["state"]["key"], value["state"]["pos"]))
        elif isinstance(value, Mapping) and depth < _DEPTH_MAX:
            for key, entry in value.items():
                walk(f"{name}.{key}", entry, depth + 1)
        elif isinstance(value, (tuple, list)) and depth < _DEPTH_MAX and len(value) <= _NUMPY_WORDS:
            for entry in value:
                walk(name, entry, depth + 1)

    walk("", states, 0)
    return found


def _is_python(value: Any) -> bool:
    plain = isinstance(value, (tuple, list)) and len(value) == 3 and isinstance(value[1], (tuple, list))
    return plain and len(value[1]) == _PYTHON_WORDS
