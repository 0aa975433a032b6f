"""Seeds every generator before the script starts (``run --seed``), switches on deterministic operations
(``run --deterministic``), and knows whether anybody has seeded torch.

Without these options nothing is set: the only call is ``torch.initial_seed()``, which reads. A script that seeds itself
does so afterwards, so its own seeds hold. This file does not import torch before the script does.
"""

from __future__ import annotations

import os
import random
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steadytrain.capture.hooks.import_hook import after_import

KEY = "randomness"
"""Its entry in the description of a run, in the environment of a bundle, and among the facts."""

SMALL_SEED_MAX = 2**32
"""Seeds of NumPy and of Python's hashes lie below. Torch's own random seed has 64 bits, so a smaller one was set."""

CUBLAS_VARIABLE, CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
HASH_VARIABLE = "PYTHONHASHSEED"
OPERATIONS_MAX = 100
_WARNED = re.compile(
    r"(.+?) (?:does not have a deterministic implementation|defaults to a non-deterministic algorithm)"
)


@dataclass(frozen=True)
class Randomness:
    """What was asked for: ``seed`` from 0 to 2**64-1 or None, and whether operations shall be deterministic."""

    seed: int | None = None
    deterministic: bool = False

    @property
    def given(self) -> bool:
        return self.seed is not None or self.deterministic

    def to_json(self) -> dict[str, Any]:
        return {"seed": self.seed, "deterministic": self.deterministic}

    @staticmethod
    def recorded(environment: Mapping[str, Any]) -> Randomness:
        """What the recorded run was started with; nothing if its entry is missing or damaged."""
        entry = environment.get(KEY)
        entry = entry if isinstance(entry, Mapping) else {}
        seed = entry.get("seed")
        return Randomness(
            seed if isinstance(seed, int) and not isinstance(seed, bool) else None, entry.get("deterministic") is True
        )


@dataclass
class _Process:
    """Of this process: what it was started with, torch's own first seed (None: not known), warned operations."""

    asked: Randomness
    own_seed: int | None
    begun: bool
    operations: dict[str, int]


_process = _Process(Randomness(), None, False, {})


AS_IT_IS = Randomness()
"""Nothing is seeded, nothing made deterministic."""


def begin_process(asked: Randomness) -> None:
    """Seed Python and NumPy now, and set what must be in the environment before CUDA starts."""
    _process.asked = asked
    if asked.seed is not None:
        small = asked.seed % SMALL_SEED_MAX
        random.seed(asked.seed)
        after_import("numpy", lambda: sys.modules["numpy"].random.seed(small))
    if asked.deterministic:
        os.environ.setdefault(CUBLAS_VARIABLE, CUBLAS_WORKSPACE)


def begin_torch() -> None:
    """Once torch is imported: remember its own seed, then set what was asked for. Later calls do nothing."""
    if _process.begun:
        return
    import torch

    _process.begun = True
    seed = torch.initial_seed()
    _process.own_seed = seed if seed > SMALL_SEED_MAX else None
    if _process.asked.seed is not None:
        torch.manual_seed(_process.asked.seed)  # of every device; loader workers derive theirs from it
    if _process.asked.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        _hear_warnings()


def facts() -> dict[str, Any]:
    """The facts of the run: whether anybody has ``seeded`` torch, with ``torch_seed``, or what ``torch_drew`` itself.

    Seeds are texts, because many readers of JSON know no integers of 64 bits.
    """
    import torch

    seed = torch.initial_seed()
    seeded = seed != _process.own_seed
    asked = _process.asked.to_json() if _process.asked.given else {}
    return {"seeded": seeded, "torch_seed" if seeded else "torch_drew": str(seed), **asked}


def unseeded() -> int | None:
    """The seed that torch drew itself, where nobody has set one; None otherwise."""
    torch = sys.modules.get("torch")
    if torch is None or not _process.begun or torch.initial_seed() != _process.own_seed:
        return None
    return _process.own_seed


def operations_that_warned() -> list[str]:
    """The operations without a deterministic version that torch has warned of."""
    return list(_process.operations)


def hash_seed_is_fixed() -> bool:
    """Whether strings hash equally in the next run: the order of sets of strings depends on it."""
    return os.environ.get(HASH_VARIABLE) not in (None, "", "random")


def hash_variables(environment: Mapping[str, Any]) -> dict[str, str]:
    """The variables for a process that repeats a recorded run: strings hash as in the run, where it was seeded."""
    seed = Randomness.recorded(environment).seed
    return {} if seed is None else {HASH_VARIABLE: str(seed % SMALL_SEED_MAX)}


def end_lines() -> list[str]:
    """What the end of a watched script says about its randomness."""
    lines, asked = [], _process.asked
    own = unseeded()
    if own is not None:
        lines.append(
            "note: no seed was set, so another run draws other numbers; "
            f"`steadytrain run --seed {own}` draws those of torch on the CPU again"
        )
    if asked.seed is not None and not hash_seed_is_fixed():
        lines.append(
            f"note: --seed did not reach the hashes of strings; set {HASH_VARIABLE}={asked.seed % SMALL_SEED_MAX}"
        )
    if asked.deterministic:
        named = operations_that_warned()
        told = f"{', '.join(named)} (no deterministic version)" if named else "no operation has warned"
        lines.append(f"deterministic: {told}; threads, other libraries and values from outside are not covered")
    return lines


def _hear_warnings() -> None:
    """Collect torch's warnings of nondeterministic operations, and pass every warning on."""
    shown = warnings.showwarning

    def show(message: Warning | str, *more: Any, **named: Any) -> None:
        found = _WARNED.match(str(message))
        if found is not None and len(_process.operations) < OPERATIONS_MAX:
            _process.operations[found[1]] = _process.operations.get(found[1], 0) + 1
        shown(message, *more, **named)

    warnings.showwarning = show
