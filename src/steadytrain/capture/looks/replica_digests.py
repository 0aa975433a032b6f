"""What several ranks have to agree on, as digests: settings, inputs, optimizer state and each parameter.

A rank writes the digests of the same steps as the others into its own table ``replica``; no collective is needed. The
steps are powers of two at first and then multiples of one, so that ranks that measure less often still measure in
steps of the others. Not here: the comparison (``rank_comparison``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.looks.repeated_inputs import digest_of
from steadytrain.capture.snapshots.digests import digest, text_digest
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.core.model import Reading

TABLE = "replica"
COLUMNS = ("high", "low")
"""The two halves of a digest, whole numbers below 2^24: a float32 holds them exactly."""

SETTING, INPUTS, STATE = "=setting ", "=inputs", "=state"
"""Rows that are no parameters, ``SETTING`` before the name of a setting of the optimizer. No parameter's name begins
with ``=``."""

PROBE_TABLE, PROBE = "replica_probe", "=probe"
PROBE_STEPS_MAX = 2048
PROBE_ELEMENTS_MAX = 4096

FIRST_STEPS = frozenset({1, 2, 4, 8})
INTERVAL_MIN, INTERVAL_MAX = 16, 4096
SHARE_MAX = 0.003
"""Share of the training time that the digests may take."""

PACES_KEPT = 7
"""The last digests whose times count; a lower one of them, because a process that had to wait looks slow."""

PARAMETERS_MAX = 4096
SETTINGS_MAX = 32
NO_SETTINGS = ("params", "param_names", "lr", "initial_lr")
"""Entries of a group that are no settings, or that the recorded learning rate shows."""

STATE_STEPS_MAX = 8
"""Steps up to which the optimizer's state has a digest: ranks that loaded another state differ from the start."""

_HALF_DIGITS = 6


class ReplicaDigests:
    """The digests of one stream, in the steps that are due."""

    def __init__(self) -> None:
        self._interval = INTERVAL_MIN
        self._last: tuple[int, float] | None = None
        self._needed: deque[float] = deque(maxlen=PACES_KEPT)

    def is_due(self, step: int) -> bool:
        return step in FIRST_STEPS or step % self._interval == 0

    def take(
        self,
        step: int,
        names: Sequence[str],
        parameters: Sequence[Tensor],
        optimizers: Sequence[torch.optim.Optimizer],
        calls: Sequence[MicroBatch],
    ) -> Reading:
        """The digests right before the update of ``step``. Measures its own time, and is due less often if slow."""
        began = time.perf_counter()
        rows = {f"{SETTING}{name}": text_digest(*values) for name, values in _settings(optimizers).items()}
        rows[INPUTS] = _inputs(calls)
        rows[STATE] = _state(optimizers) if step <= STATE_STEPS_MAX else ""
        for name, parameter in list(zip(names, parameters, strict=True))[:PARAMETERS_MAX]:
            if not is_sharded([parameter]):
                rows[name] = text_digest(digest(parameter))
        self._pace(step, began)
        return _reading(TABLE, rows)

    def _pace(self, step: int, began: float) -> None:
        now = time.perf_counter()
        if self._last is not None and step > self._last[0]:
            step_s = (began - self._last[1]) / (step - self._last[0])
            self._needed.append((now - began) / max(SHARE_MAX * step_s, 1e-9))
            needed = sorted(self._needed)[len(self._needed) // 3]
            self._interval = INTERVAL_MIN
            while self._interval < min(needed, INTERVAL_MAX):
                self._interval *= 2
        self._last = step, now


def probe(parameters: Sequence[Tensor]) -> Reading | None:
    """The digest of the smallest parameter: cheap enough for every step. It shows weights that are averaged now and
    then, which the digests between two averages miss. None if all are large or sharded.
    """
    plain = [one for one in parameters if not is_sharded([one]) and one.requires_grad]
    smallest = min(plain, key=Tensor.numel, default=None)
    if smallest is None or smallest.numel() > PROBE_ELEMENTS_MAX:
        return None
    return _reading(PROBE_TABLE, {PROBE: text_digest(digest(smallest))})


def _reading(table: str, rows: Mapping[str, str]) -> Reading:
    return Reading(table, tuple(rows), COLUMNS, np.array([_halves(one) for one in rows.values()], np.float32))


def _halves(text: str) -> tuple[float, float]:
    if not text:
        return float("nan"), float("nan")
    return float(int(text[:_HALF_DIGITS], 16)), float(int(text[_HALF_DIGITS : 2 * _HALF_DIGITS], 16))


def _settings(optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, list[Any]]:
    """By name the values of a setting in all groups of all optimizers."""
    found: dict[str, list[Any]] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for name, value in list(group.items())[:SETTINGS_MAX]:
                if name not in NO_SETTINGS:
                    found.setdefault(str(name), []).append(
                        value.tolist() if isinstance(value, Tensor) and value.numel() == 1 else str(value)
                    )
    return found


def _inputs(calls: Sequence[MicroBatch]) -> str:
    found = digest_of(*((call.args, call.kwargs) for call in calls[:1]))
    return found.hex() if found else ""


def _state(optimizers: Iterable[torch.optim.Optimizer]) -> str:
    """The digest of all state of the optimizers, in the order of their parameters; of no state too."""
    parts: list[Any] = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                entries = optimizer.state.get(parameter, {})
                for name, value in sorted(entries.items(), key=lambda entry: str(entry[0])):
                    if isinstance(value, Tensor) and not is_sharded([value]):
                        parts += [name, digest(value)]
                    elif isinstance(value, (int, float)):
                        parts += [name, float(value)]
    return text_digest(*parts)
