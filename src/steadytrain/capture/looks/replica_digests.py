"""What several ranks have to agree on, as digests: settings, inputs, optimizer state, each parameter and buffer.

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

from steadytrain.capture.hooks.model_discovery import plain_name
from steadytrain.capture.looks.held_parameters import is_sharded
from steadytrain.capture.looks.repeated_inputs import digest_of
from steadytrain.capture.looks.replica_groups import ALONE, ReplicaGroups, local_part
from steadytrain.capture.snapshots.digests import digest, text_digest
from steadytrain.capture.step.input_recorder import MicroBatch
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import Reading

TABLE = "replica"
COLUMNS = ("high", "low", "group")
"""The two halves of a digest, and the group of ranks that should have it (``replica_groups``; 0: all ranks): whole
numbers below 2^24, so that a float32 holds them exactly."""

SETTING, BUFFER, INPUTS, STATE = "=setting ", "=buffer ", "=inputs", "=state"
"""Rows that are no parameters, the first two with the name of a setting of the optimizer or of a buffer. No parameter's
name begins with ``=``."""

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
BUFFERS_MAX = 1024
SETTINGS_MAX = 32
NO_SETTINGS = ("params", "param_names", "lr", "initial_lr")
"""Entries of a group that are no settings, or that the recorded learning rate shows."""

LATER_RATES = "learning rate of a later group"
"""The recorded learning rate is that of the first group."""

STEP_COUNT = "step count"
"""The row of the steps that the optimizer's state counts: fewer on a rank that lost its state."""

COUNTED_MAX = 8
PARTED_OPTIMIZERS = ("ZeroRedundancyOptimizer",)
"""Each rank holds the state of its own parameters only."""

STATE_STEPS_MAX = 8
"""Steps up to which the optimizer's state has a digest: ranks that loaded another state differ from the start."""

_FLAT = "FlatParameter"
_HALF_DIGITS = 6


class ReplicaDigests:
    """The digests of one stream, in the steps that are due."""

    def __init__(self) -> None:
        self._interval = INTERVAL_MIN
        self._last: tuple[int, float] | None = None
        self._needed: deque[float] = deque(maxlen=PACES_KEPT)
        self._groups: tuple[Any, ReplicaGroups] | None = None

    def is_due(self, step: int) -> bool:
        return step in FIRST_STEPS or step % self._interval == 0

    def take(self, step: int, stream: Stream, calls: Sequence[MicroBatch]) -> Reading:
        """The digests right before the update of ``step``. Measures its own time, and is due less often if slow."""
        began = time.perf_counter()
        rows = {f"{SETTING}{name}": text_digest(*values) for name, values in _settings(stream.optimizers).items()}
        rows[f"{SETTING}{STEP_COUNT}"] = _step_counts(stream.optimizers)
        rows[INPUTS] = _inputs(calls)
        rows[STATE] = _state(stream.optimizers) if step <= STATE_STEPS_MAX else ""
        groups = self._groups_of(stream)
        of_rows = dict.fromkeys(rows, ALONE)
        named = list(zip(stream.tensor_names, stream.parameters, strict=True))[:PARAMETERS_MAX]
        found = [(name, one, groups.of_parameter(one)) for name, one in named if type(one).__name__ != _FLAT]
        found += [(f"{BUFFER}{name}", one, groups.of_buffer(one)) for name, one in _buffers(stream)]
        for name, tensor, group in found:
            if group != ALONE:
                rows[name], of_rows[name] = text_digest(digest(local_part(tensor))), group
        self._pace(step, began)
        return _reading(TABLE, rows, of_rows)

    def _groups_of(self, stream: Stream) -> ReplicaGroups:
        """Found anew when the parameters or the wrapper are others than before."""
        key = (stream.joint, stream.signature)
        if self._groups is None or self._groups[0] != key:
            self._groups = key, ReplicaGroups(stream.joint, stream.roots(), stream.parameters)
        return self._groups[1]

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
    then, which the digests between two averages miss. None if all are large or some are sharded.
    """
    plain = [one for one in parameters if one.requires_grad] if not is_sharded(parameters) else []
    smallest = min(plain, key=Tensor.numel, default=None)
    if smallest is None or smallest.numel() > PROBE_ELEMENTS_MAX:
        return None
    return _reading(PROBE_TABLE, {PROBE: text_digest(digest(smallest))}, {PROBE: ALONE})


def _reading(table: str, rows: Mapping[str, str], groups: Mapping[str, int]) -> Reading:
    values = [(*_halves(text), float(groups[row]) if text else float("nan")) for row, text in rows.items()]
    return Reading(table, tuple(rows), COLUMNS, np.array(values, np.float32))


def _buffers(stream: Stream) -> list[tuple[str, Tensor]]:
    """The buffers of floating-point numbers, by name. Whole numbers may count what one rank alone does."""
    found: dict[str, Tensor] = {}
    for root in stream.roots():
        for name, one in root.named_buffers():
            if one.is_floating_point():
                found.setdefault(plain_name(name), one)
    return list(found.items())[:BUFFERS_MAX]


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
                    found.setdefault(str(name), []).append(_plain(value))
        for group in optimizer.param_groups[1:]:
            found.setdefault(LATER_RATES, []).append(_plain(group.get("lr")))
    return found


def _step_counts(optimizers: Iterable[torch.optim.Optimizer]) -> str:
    """Of all optimizers; of none where one has no state yet, or never has any."""
    counts = [_steps_of(one) for one in optimizers]
    return text_digest(*counts) if all(counts) else ""


def _steps_of(optimizer: torch.optim.Optimizer) -> float:
    """The most steps that a state of the optimizer, or of the one it holds a part with, counts; 0 if none is known
    without asking a device."""
    held = getattr(optimizer, "optim", None) if type(optimizer).__name__ in PARTED_OPTIMIZERS else optimizer
    states = list(getattr(held, "state", {}).values())[:COUNTED_MAX]
    steps = [one["step"] for one in states if isinstance(one, Mapping) and "step" in one]
    counted = [
        one for one in steps if isinstance(one, int | float) or (type(one) is Tensor and one.device.type == "cpu")
    ]
    return max((float(one) for one in counted), default=0.0)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) and value.numel() == 1 else str(value)


def _inputs(calls: Sequence[MicroBatch]) -> str:
    found = digest_of(*((call.args, call.kwargs) for call in calls[:1]))
    return found.hex() if found else ""


def _state(optimizers: Iterable[torch.optim.Optimizer]) -> str:
    """The digest of all state of the optimizers, in the order of their parameters; of no state too."""
    parts: list[Any] = []
    for optimizer in optimizers:
        if type(optimizer).__name__ in PARTED_OPTIMIZERS:
            continue
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                entries = optimizer.state.get(parameter, {})
                for name, value in sorted(entries.items(), key=lambda entry: str(entry[0])):
                    if isinstance(value, Tensor) and not is_sharded([value]):
                        parts += [name, digest(value)]
                    elif isinstance(value, (int, float)):
                        parts += [name, float(value)]
    return text_digest(*parts)
