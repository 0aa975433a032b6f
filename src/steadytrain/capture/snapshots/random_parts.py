"""Stores random states on the tape: each part once, keyed by its digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.snapshots.digests import text_digest
from steadytrain.capture.step.input_recorder import RandomState


class RandomTable:
    """Stores random states by the hashes of their parts. An unchanged part is not hashed again."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, str]] = {}
        self._document: dict[str, Any] = {}

    def keys(self, state: RandomState, parts: dict[str, Any]) -> dict[str, Any]:
        """The document of ``state``: one key per part. Adds new parts to ``parts`` under their keys."""
        found = {
            "python": self._key("python", state.python, _same_value, parts),
            "numpy": self._key("numpy", state.numpy, _same_numpy, parts) if state.numpy is not None else None,
            "torch": self._key("torch", state.torch, torch.equal, parts),
        }
        cuda = [self._key(f"cuda{number}", one, torch.equal, parts) for number, one in enumerate(state.cuda)]
        document = {**found, "cuda": cuda}
        if document != self._document:
            self._document = document  # states in a row are often the same one: written once (``redact_tree``)
        return self._document

    def _key(self, name: str, value: Any, same: Any, parts: dict[str, Any]) -> str:
        last = self._last.get(name)
        if last is not None and (last[0] is value or same(last[0], value)):
            key = last[1]
        else:
            key = random_part_digest(value)
            self._last[name] = (value, key)
        if key not in parts:
            parts[key] = random_part(value)
        return key


def random_keys(state: RandomState) -> dict[str, Any]:
    """The digests of a random state's parts, as on a tape."""
    return RandomTable().keys(state, {})


def random_part_digest(value: Any) -> str:
    if isinstance(value, Tensor):
        return text_digest("torch", value.numpy().tobytes())
    if isinstance(value, Mapping):
        state = value["state"]
        plain = (value["bit_generator"], int(state["pos"]), int(value["has_gauss"]), float(value["gauss"]).hex())
        return text_digest("numpy", plain, np.asarray(state["key"]).tobytes())
    version, internal, gauss = value
    return text_digest("python", version, None if gauss is None else float(gauss).hex(), _words(internal).tobytes())


def random_part(value: Any) -> Any:
    """One generator's state as plain values and a tensor."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        state = value["state"]
        key = torch.from_numpy(np.array(state["key"], np.int64))
        gauss, has = float(value["gauss"]), int(value["has_gauss"])
        return {"name": value["bit_generator"], "key": key, "pos": int(state["pos"]), "has_gauss": has, "gauss": gauss}
    version, internal, gauss = value
    return {"version": version, "internal": torch.from_numpy(_words(internal)), "gauss": gauss}


def random_from_parts(keys: Mapping[str, Any], parts: Mapping[str, Any]) -> RandomState:
    """The inverse of :meth:`RandomTable.keys`."""
    python, numpy_part = parts[keys["python"]], parts[keys["numpy"]] if keys["numpy"] is not None else None
    return RandomState(
        python=(python["version"], tuple(python["internal"].tolist()), python["gauss"]),
        numpy=None
        if numpy_part is None
        else {
            "bit_generator": numpy_part["name"],
            "state": {"key": numpy_part["key"].numpy().astype(np.uint32), "pos": numpy_part["pos"]},
            "has_gauss": numpy_part["has_gauss"],
            "gauss": numpy_part["gauss"],
        },
        torch=parts[keys["torch"]],
        cuda=tuple(parts[key] for key in keys["cuda"]),
    )


def _words(internal: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(internal, np.int64)


def _same_value(one: Any, other: Any) -> bool:
    return bool(one == other)


def _same_numpy(one: Any, other: Any) -> bool:
    a, b = one["state"], other["state"]
    plain = (a["pos"], one["has_gauss"], one["gauss"]) == (b["pos"], other["has_gauss"], other["gauss"])
    return plain and bool(np.array_equal(a["key"], b["key"]))
