"""What the script saves: whether it holds the watched model or its optimizer, and whether its values are finite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import named_tensors, plain_name
from steadytrain.capture.tensors.dense import dense_values

TENSORS_MAX = 200_000
DEPTH_MAX = 8
PREFIXES_MAX = 4
SHARE_MIN = 0.5
NAMES_MAX = 3


@dataclass(frozen=True)
class Contents:
    """The tensors of one save by dotted key: shapes, and those whose values are not finite."""

    shapes: Mapping[str, tuple[int, ...]]
    nan: tuple[str, ...] = ()
    infinite: tuple[str, ...] = ()
    only_minus: frozenset[str] = frozenset()
    """Those of ``infinite`` whose only non-finite value is -Inf, like masks."""

    is_optimizer: bool = False


def contents_of(saved: Any) -> Contents:
    """Reads each value once, at about the speed of memory; on an accelerator it waits for the script's work."""
    if isinstance(saved, nn.Module):
        tensors = dict(named_tensors(saved))
    else:
        tensors = {}
        for key, tensor in _tensors(saved, "", 0):
            tensors[key] = tensor
            if len(tensors) >= TENSORS_MAX:
                break
    is_optimizer = isinstance(saved, Mapping) and "param_groups" in saved and "state" in saved
    shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    nan, infinite, minus = [], [], set()
    for key, low, high in _ranges(tensors):
        if low != low or high != high:
            nan.append(key)
        elif low == -torch.inf or high == torch.inf:
            infinite.append(key)
            if high != torch.inf:
                minus.add(key)
    return Contents(shapes, tuple(nan), tuple(infinite), frozenset(minus), is_optimizer)


def bad_keys(
    contents: Contents, parameters: Mapping[str, tuple[int, ...]], buffers: Mapping[str, tuple[int, ...]]
) -> list[str] | None:
    """The keys of weights, buffers and moments that are not finite; None if it is no checkpoint of the model."""
    named = {key: name for key in contents.shapes if (name := _name_in(key, parameters, buffers)) is not None}
    found = set(named.values()) & set(parameters)
    by_shape = not found and _same_shapes(contents, parameters)
    if not by_shape and not contents.is_optimizer and len(found) < SHARE_MIN * len(parameters):
        return None
    bad = []
    for key in (*contents.nan, *contents.infinite):
        is_state = key in named or by_shape or _is_moment(key)
        by_design = key in contents.only_minus and named.get(key) not in parameters and not _is_moment(key)
        if is_state and not by_design:
            bad.append(key)
    return bad


def _is_moment(key: str) -> bool:
    return key.startswith("state.") or ".state." in key


def _same_shapes(contents: Contents, parameters: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether it is a list of the parameters without their names."""
    there = list(contents.shapes.values())
    for shape in parameters.values():
        if shape not in there:
            return False
        there.remove(shape)
    return len(parameters) > 1


def _name_in(key: str, *known: Mapping[str, tuple[int, ...]]) -> str | None:
    """``key`` as a name of the model, without what wrappers and the checkpoint put before it."""
    parts = plain_name(key).split(".")
    for start in range(min(PREFIXES_MAX, len(parts))):
        name = ".".join(parts[start:])
        if any(name in names for names in known):
            return name
    return None


def _tensors(value: Any, key: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield key, value.detach()
    elif isinstance(value, nn.Module):
        yield from ((f"{key}.{name}", tensor.detach()) for name, tensor in named_tensors(value))
    elif depth < DEPTH_MAX and isinstance(value, Mapping):
        for name, one in value.items():
            yield from _tensors(one, f"{key}.{name}" if key else str(name), depth + 1)
    elif depth < DEPTH_MAX and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for place, one in enumerate(value[:TENSORS_MAX] if isinstance(value, list | tuple) else ()):
            if not isinstance(one, int | float | str):
                yield from _tensors(one, f"{key}.{place}" if key else str(place), depth + 1)


def _ranges(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, float, float]]:
    """Lowest and highest value of each tensor of floating point; one transfer for each device."""
    waiting: dict[torch.device, list[tuple[str, Tensor, Tensor]]] = {}
    for key, tensor in tensors.items():
        values = dense_values(tensor)
        if values is None or not values.numel():
            continue
        low, high = torch.aminmax(values)
        waiting.setdefault(values.device, []).append((key, low, high))
    for device, found in waiting.items():
        dtype = torch.float32 if device.type == "mps" else torch.float64
        both = torch.stack([torch.stack((low.to(dtype), high.to(dtype))) for _, low, high in found]).tolist()
        yield from ((key, low, high) for (key, _, _), (low, high) in zip(found, both, strict=True))
