"""The non-tensor arguments of a recorded operation: as values, as JSON, and as Python source.

Only types of ATen schemas are supported: tensors by reference, numbers, texts, dtypes, layouts, memory formats,
devices, and lists of these. Others (a generator, a custom object) are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from steadytrain.core.json_values import number_from_json, number_to_json

TORCH_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


class CannotWriteError(Exception):
    """The script cannot contain an argument, operation or tensor; the text says which and why."""


@dataclass(frozen=True)
class Ref:
    """A tensor by its name in the program."""

    name: str


@dataclass(frozen=True)
class Device:
    """The device on which the program runs."""


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with ``change`` applied to every leaf, through lists, tuples and dictionaries."""
    if isinstance(value, (list, tuple)):
        return type(value)(map_leaves(entry, change) for entry in value)
    if isinstance(value, dict):
        return {key: map_leaves(entry, change) for key, entry in value.items()}
    return change(value)


def refs_in(value: Any) -> Iterator[str]:
    """The names of the tensors in ``value``, in order, with repeats."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from refs_in(entry)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from refs_in(entry)


def to_json(value: Any) -> Any:
    """``value`` as plain JSON.

    Raises:
        CannotWriteError: a part of it has no schema type.
    """
    if isinstance(value, Ref):
        return {"ref": value.name}
    if isinstance(value, (Device, torch.device)):
        return {"device": None}
    if isinstance(value, TORCH_CONSTANTS):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, complex):
        return {"complex": [number_to_json(value.real), number_to_json(value.imag)]}
    if isinstance(value, float):
        return {"float": number_to_json(value)}
    if value is None or isinstance(value, (bool, int, str)):
        return {"value": value}
    if isinstance(value, (list, tuple)):
        return {"list": [to_json(entry) for entry in value]}
    if isinstance(value, dict):
        return {"dict": {str(key): to_json(entry) for key, entry in value.items()}}
    raise CannotWriteError(f"an argument of type {type(value).__qualname__} cannot be written into a script")


def from_json(tree: Any) -> Any:
    """Inverts :func:`to_json`. Tuples become lists, which torch accepts equally."""
    ((kind, body),) = tree.items()
    if kind == "list":
        return [from_json(entry) for entry in body]
    if kind == "dict":
        return {key: from_json(entry) for key, entry in body.items()}
    if kind == "complex":
        real, imaginary = map(number_from_json, body)
        return complex(float(real or 0), float(imaginary or 0))
    leaves: dict[str, Callable[[Any], Any]] = {
        "ref": Ref,
        "device": lambda _: Device(),
        "torch": lambda name: getattr(torch, name),
        "float": number_from_json,
        "value": lambda plain: plain,
    }
    return leaves[kind](body)


def source(value: Any) -> str:
    """``value`` as Python source. A tensor becomes its name, the device becomes ``device``."""
    if isinstance(value, Ref):
        return value.name
    if isinstance(value, Device):
        return "device"
    if isinstance(value, TORCH_CONSTANTS):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(source(entry) for entry in value)}]"
    return repr(value)
