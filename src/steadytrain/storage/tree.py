"""Encode nested values with tensors as JSON plus a flat dictionary of tensors. Never pickle.

The codec treats a tensor as an opaque leaf, so it needs no torch: the live half decides what is a tensor and writes the
dictionary as safetensors. A value whose type JSON lacks becomes a note of its type at its place. Such a value cannot be
fed back, and nothing replaces it silently.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.json_values import number_from_json, number_to_json

DEPTH_MAX = 32
NODES_MAX = 1_000_000
STRING_LENGTH_MAX = 100_000


@dataclasses.dataclass(frozen=True)
class Opaque:
    """Marks a value in a decoded tree that was not kept."""

    type_name: str


def encode(value: Any, is_tensor: Callable[[Any], bool], *, prefix: str = "t") -> tuple[Any, dict[str, Any]]:
    """``value`` as a JSON tree and the tensors in it, keyed ``<prefix>.<number>``."""
    tensors: dict[str, Any] = {}
    nodes = itertools.count()

    def walk(node: Any, depth: int) -> Any:
        if next(nodes) >= NODES_MAX:
            return {"opaque": f"{type(node).__qualname__} (beyond the first {NODES_MAX} values)"}
        if is_tensor(node):
            key = f"{prefix}.{len(tensors)}"
            tensors[key] = node
            return {"tensor": key}
        if node is None or isinstance(node, (bool, int)):
            return {"value": node}
        if isinstance(node, float):
            return {"float": number_to_json(node)}
        if isinstance(node, str) and len(node) <= STRING_LENGTH_MAX:
            return {"value": node}
        if depth >= DEPTH_MAX:
            return {"opaque": f"{type(node).__qualname__} (nested deeper than {DEPTH_MAX})"}
        if isinstance(node, list):
            return {"list": [walk(entry, depth + 1) for entry in node]}
        if isinstance(node, tuple):
            return {"tuple": [walk(entry, depth + 1) for entry in node]}
        if isinstance(node, Mapping) and all(isinstance(key, str) for key in node):
            return {"dict": [[key, walk(entry, depth + 1)] for key, entry in node.items()]}
        return {"opaque": f"{type(node).__module__}.{type(node).__qualname__}"}

    return walk(value, 0), tensors


def decode(tree: Any, tensors: Mapping[str, Any]) -> Any:
    """Reverse :func:`encode`. A value that was not kept becomes an :class:`Opaque`.

    Raises:
        UsageError: not such a tree, or one of its tensors is missing.
    """
    try:
        return _decode(tree, tensors, 0)
    except UsageError:
        raise
    except (TypeError, ValueError) as error:
        raise UsageError(f"not a steadytrain value tree ({error})") from None


def _decode(tree: Any, tensors: Mapping[str, Any], depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise UsageError(f"a steadytrain value tree nests at most {DEPTH_MAX} deep")
    if not isinstance(tree, dict) or len(tree) != 1:
        raise UsageError(f"not a steadytrain value tree: {str(tree)[:80]!r}")
    ((kind, body),) = tree.items()
    if kind == "tensor":
        if body not in tensors:
            raise UsageError(f"the tensor {body!r} of the value tree is missing from its file")
        return tensors[body]
    if kind == "value":
        return body
    if kind == "float":
        return number_from_json(body)
    if kind == "list":
        return [_decode(entry, tensors, depth + 1) for entry in body]
    if kind == "tuple":
        return tuple(_decode(entry, tensors, depth + 1) for entry in body)
    if kind == "dict":
        return {key: _decode(entry, tensors, depth + 1) for key, entry in body}
    if kind == "opaque":
        return Opaque(str(body))
    raise UsageError(f"unknown kind {kind!r} in a steadytrain value tree")


def opaque_types(tree: Any) -> list[str]:
    """The types of the values in an encoded tree that were not kept."""
    if not isinstance(tree, dict) or len(tree) != 1:
        return []
    ((kind, body),) = tree.items()
    if kind == "opaque":
        return [str(body)]
    if kind in ("list", "tuple"):
        return [name for entry in body for name in opaque_types(entry)]
    if kind == "dict":
        return [name for _, entry in body for name in opaque_types(entry)]
    return []
