"""The keys of a checkpoint outside of its models and optimizers, and whether they tell of an object's state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from steadytrain.capture.snapshots.stateful_objects import Stateful

DEPTH_MAX, KEYS_MAX = 4, 2000
LETTERS_MIN = 3
SAYS_NOTHING = frozenset(
    {"model", "net", "state", "statedict", "optimizer", "optim", "step", "globalstep", "epoch", "iteration"}
    | {"config", "args", "loss", "best", "rng", "seed"}
)
"""Keys that are parts of many names."""

PLAIN = (str, bytes, int, float, bool, type(None), Tensor)


class CheckpointKeys:
    """Reads ``checkpoint`` once and keeps names only."""

    def __init__(self, checkpoint: Mapping[str, Any]) -> None:
        self.has_moments = False
        self._keys: set[str] = set()
        self._parts: list[frozenset[str]] = []
        self._classes: set[str] = set()
        self._read(checkpoint, 0)

    def hold(self, one: Stateful) -> bool:
        """Whether a key is called like the object or its class, or keys are called like its attributes."""
        names = {_letters(one.name.rpartition(".")[2]), _letters(type(one.thing).__name__)}
        telling = {key for key in self._keys if len(key) >= LETTERS_MIN and key not in SAYS_NOTHING}
        if type(one.thing).__name__ in self._classes or any(
            name in key or key in name for key in telling for name in names if name
        ):
            return True
        attributes = {_letters(name) for name in one.attributes}
        if any(part and part <= attributes for part in self._parts):
            return True
        long = [name for name in attributes if len(name) >= LETTERS_MIN]
        return one.is_statistics and any(key.endswith(name) for key in self._keys for name in long)

    def _read(self, value: Any, depth: int) -> None:
        if depth > DEPTH_MAX or isinstance(value, PLAIN):
            return
        if isinstance(value, Mapping):
            if "param_groups" in value:
                self.has_moments = self.has_moments or bool(value.get("state"))
                return
            names = [one for one in value if isinstance(one, str)]
            if any("." in one for one in names) and all(isinstance(one, Tensor) for one in value.values()):
                return
            letters = frozenset(_letters(one) for one in names)
            if depth:
                self._parts.append(letters)
            self._keys |= set(list(letters)[: KEYS_MAX - len(self._keys)])
        elif not isinstance(value, (list, tuple)):
            self._classes.add(type(value).__name__)
            return
        for one in _inside(value):
            self._read(one, depth + 1)


def _inside(value: Any) -> Iterator[Any]:
    yield from list(value.values() if isinstance(value, Mapping) else value)[:KEYS_MAX]


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
