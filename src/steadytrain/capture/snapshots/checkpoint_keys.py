"""The keys of a checkpoint outside of its models and optimizers, and whether they tell of an object's state."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
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
        self._keys: set[tuple[str, str]] = set()
        self._parts: list[tuple[str, frozenset[str]]] = []
        self._classes: set[str] = set()
        self._read(checkpoint, "", 0)

    def hold(self, one: Stateful, others: Collection[str] = ()) -> bool:
        """Whether a key is called like the object or its class, or keys are called like its attributes.

        Args:
            one: the object.
            others: the names of objects beside it: what is kept under the name of one of them is not its own.
        """
        leaf = letters(one.leaf)
        taken = {name for name in map(letters, others) if name != leaf}
        keys = {key for parent, key in self._keys if not {parent, key} & taken}
        names = {leaf, letters(type(one.thing).__name__)}
        telling = {key for key in keys if len(key) >= LETTERS_MIN and key not in SAYS_NOTHING}
        if any(name in key or key in name for key in telling for name in names if name):
            return True
        if type(one.thing).__name__ in self._classes and not taken & {key for _, key in self._keys}:
            return True
        attributes = {letters(name) for name in one.attributes}
        if any(part and part <= attributes for parent, part in self._parts if parent not in taken):
            return True
        long = [name for name in attributes if len(name) >= LETTERS_MIN]
        return one.is_statistics and any(key.endswith(name) for key in keys for name in long)

    def _read(self, value: Any, name: str, depth: int) -> None:
        if depth > DEPTH_MAX or isinstance(value, PLAIN):
            return
        inside: list[tuple[str, Any]] = []
        if isinstance(value, Mapping):
            if "param_groups" in value:
                self.has_moments = self.has_moments or bool(value.get("state"))
                return
            named = {key: one for key, one in value.items() if isinstance(key, str)}
            if any("." in key for key in named) and all(isinstance(one, Tensor) for one in named.values()):
                return
            found = frozenset(map(letters, named))
            if depth:
                self._parts.append((name, found))
            self._keys |= {(name, key) for key in list(found)[: max(0, KEYS_MAX - len(self._keys))]}
            inside = [(letters(key), one) for key, one in named.items()]
        elif isinstance(value, (list, tuple)):
            inside = [(name, one) for one in value]
        else:
            self._classes.add(type(value).__name__)
        for key, one in inside[:KEYS_MAX]:
            self._read(one, key, depth + 1)


def letters(name: str) -> str:
    """``name`` without case and without all that is no letter or digit."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
