"""Copies of the training's state in memory, for a roll-back: weights, buffers, optimizer state, averages of weights.

A copy is taken at the beginning of a step, before its first forward. Close ones are kept for the last steps and fewer
for those before. Learning-rate schedules, gradient scalers, random state and the position in the data are not in it:
they go on.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.model_discovery import living_modules
from steadytrain.core.torch_private import BUFFERS
from steadytrain.guard.setting_jumps import settings_of
from steadytrain.statistics.medians import median

EVERY_STEPS = 8
COST_SHARE = 0.02
"""The share of the run's time that copying may take; a larger state is copied less often."""

BYTES_MAX = 2 << 30
AGE_MAX = 2048
CLOSE = 4
"""So many of the newest copies are kept; of those up to twice as old every second one, of those up to four times as old
every fourth one, and so on. Their number decides, so a copy that is dropped is never needed later."""

STRETCH = 2
"""By how much the interval between copies grows at most at once: one slow copy on a busy machine says little."""

COSTS_KEPT = 5

TOO_LARGE = "two copies of its state do not fit into {size:,} MB of memory"


@dataclass
class StateCopy:
    """The state at the beginning of the step after ``step``. ``number`` counts the copies of the run from 0.
    ``settings`` are those of the groups of each optimizer, by its id."""

    step: int
    number: int = 0
    parameters: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    buffers: list[tuple[nn.Module, str, Tensor]] = field(default_factory=list)
    optimizers: list[tuple[torch.optim.Optimizer, dict[Any, Any]]] = field(default_factory=list)
    settings: dict[int, list[dict[str, float]]] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Memory of the copied tensors."""
        tensors = [*(values for _, values in self.parameters), *(values for _, _, values in self.buffers)]
        tensors += [tensor for _, state in self.optimizers for tensor in _tensors(state)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    @property
    def is_finite(self) -> bool:
        """Whether all weights, floating-point buffers without masks, and moments are finite."""
        tensors = [values for _, values in self.parameters]
        tensors += [tensor for _, state in self.optimizers for tensor in _tensors(state)]
        return all(bool(torch.isfinite(one).all()) for one in tensors if one.is_floating_point())

    @torch.no_grad()
    def now(self, step: int) -> StateCopy:
        """What the same tensors and optimizers hold now, after ``step``."""
        return StateCopy(
            step,
            parameters=[(parameter, parameter.detach().clone()) for parameter, _ in self.parameters],
            buffers=[
                (owner, name, buffer.detach().clone())
                for owner, name, _ in self.buffers
                if (buffer := _buffer_now(owner, name)) is not None
            ],
            optimizers=[
                (optimizer, {key: _copy_of(values) for key, values in optimizer.state.items()})
                for optimizer, _ in self.optimizers
            ],
            settings={id(optimizer): _settings(optimizer) for optimizer, _ in self.optimizers},
        )

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back. Tensors keep their identity."""
        for parameter, values in self.parameters:
            parameter.data.copy_(values)
        for owner, name, values in self.buffers:
            buffer = _buffer_now(owner, name)
            if buffer is not None and buffer.shape == values.shape:
                buffer.data.copy_(values)
        for optimizer, state in self.optimizers:
            for parameter in [one for one in optimizer.state if one not in state]:
                del optimizer.state[parameter]
            for parameter, values in state.items():
                _put_back(optimizer.state, parameter, values)


class StateCopies:
    """Takes copies and thins them out. Only the training thread uses it."""

    def __init__(self, size_bytes_max: int = BYTES_MAX) -> None:
        self._size_bytes_max = size_bytes_max
        self._copies: deque[StateCopy] = deque()
        self._every = EVERY_STEPS
        self._costs_s: deque[float] = deque(maxlen=COSTS_KEPT)
        self._taken = 0
        self._last = -math.inf
        self._averages: list[nn.Module] | None = None
        self._pinned: StateCopy | None = None
        self.why_not: str | None = None
        """Why no roll-back is possible; None if it is, or may be later."""

    def is_due(self, step: int) -> bool:
        """Whether a copy is to be taken after ``step``."""
        return self.why_not is None and step - self._last >= self._every

    def take(
        self,
        step: int,
        roots: Sequence[nn.Module],
        parameters: Sequence[Tensor],
        optimizers: Sequence[torch.optim.Optimizer],
        *,
        step_s: float,
    ) -> None:
        """Copy the state after ``step``. ``step_s``: the usual time of a step, in seconds."""
        began = time.perf_counter()
        if self._averages is None:
            self._averages = list(_averages_of(roots))
        copy = _copied(step, [*roots, *self._averages], parameters, optimizers)
        copy.number = self._taken
        self._taken += 1
        size = max(1, copy.size_bytes)
        self._last = step
        most = self._size_bytes_max // size
        if most < 2:
            self.why_not, self._copies = TOO_LARGE.format(size=self._size_bytes_max // 1_000_000), deque()
            return
        self._copies.append(copy)
        self._thin(step, most)
        self._costs_s.append(time.perf_counter() - began)
        if step_s > 0:
            affordable = math.ceil(median(np.asarray(self._costs_s)) / (COST_SHARE * step_s))
            self._every = max(EVERY_STEPS, min(affordable, STRETCH * self._every))

    def before(self, step: int) -> StateCopy | None:
        """The newest finite copy of a state in which no step from ``step`` on is contained."""
        pinned = [self._pinned] if self._pinned is not None else []
        for copy in sorted([*self._copies, *pinned], key=lambda one: -one.step):
            if copy.step < step and copy.is_finite:
                return copy
        return next((copy for copy in self._copies if copy.step == 0 and copy.is_finite), None)

    def is_overwritten(self, onset: int) -> bool:
        """Whether a buffer that stood still before ``onset`` has another value since, and stands still again: frozen
        statistics are lost, say. No data and no update do that."""
        before = [one for one in self._copies if one.step < onset]
        since = [one for one in self._copies if one.step >= onset]
        if len(before) < 2 or not since:
            return False
        then, later = _floating(before[-2]), _floating(since[-1])
        return any(
            key in then
            and key in later
            and torch.equal(then[key], values)
            and not torch.equal(later[key], values)
            and torch.equal(later[key], now)
            for key, values in _floating(before[-1]).items()
            if (now := _buffer_now(*key)) is not None and now.shape == values.shape == then.get(key, values).shape
        )

    def pin(self, step: int) -> None:
        """Keep the newest finite copy from before ``step``, however old it gets."""
        self._pinned = self.before(step)

    def unpin(self) -> None:
        """That copy may grow old like the others."""
        self._pinned = None

    def fits(self, copy: StateCopy) -> bool:
        """Whether there is memory for one more like ``copy``."""
        return self.size_bytes + copy.size_bytes <= self._size_bytes_max

    def forget_after(self, step: int) -> None:
        """Drop the copies of later states: the run has rolled back to ``step``."""
        while self._copies and self._copies[-1].step > step:
            self._copies.pop()

    def release(self) -> None:
        """Drop everything."""
        self._copies.clear()
        self._averages = self._pinned = None

    @property
    def size_bytes(self) -> int:
        """Memory of all copies."""
        return sum(copy.size_bytes for copy in [*self._copies, *self._extra])

    @property
    def _extra(self) -> list[StateCopy]:
        """The pinned copy, where it is not among the others any more."""
        is_extra = self._pinned is not None and all(copy is not self._pinned for copy in self._copies)
        return [self._pinned] if is_extra and self._pinned is not None else []

    def _thin(self, step: int, most: int) -> None:
        young = [copy for copy in reversed(self._copies) if step - copy.step <= AGE_MAX]
        kept = [copy for copy in young if self._taken - 1 - copy.number < CLOSE * _largest_power_of_two(copy.number)]
        if most < 3 + len(self._extra):
            self.unpin()
        kept = kept[: most - 1 - len(self._extra)]
        oldest = self._copies[0]
        if kept[-1] is not oldest and step - oldest.step <= AGE_MAX:
            kept.append(oldest)  # that of the start, in a young run: the way back from a rate that was never right
        self._copies = deque(reversed(kept))


def _largest_power_of_two(number: int) -> float:
    """That divides ``number``; infinite for 0."""
    return number & -number if number else math.inf


@torch.no_grad()
def _copied(
    step: int, roots: Sequence[nn.Module], parameters: Sequence[Tensor], optimizers: Sequence[torch.optim.Optimizer]
) -> StateCopy:
    copy = StateCopy(step)
    held: dict[int, Tensor] = {id(parameter): parameter for root in roots for parameter in root.parameters()}
    held |= {id(parameter): parameter for parameter in parameters}
    live = list(held.values())
    copy.parameters = [(parameter, parameter.detach().clone()) for parameter in live]
    for root in roots:
        for owner in root.modules():
            copy.buffers += [
                (owner, name, buffer.detach().clone())
                for name, buffer in BUFFERS.of(owner).items()
                if isinstance(buffer, Tensor)
            ]
    for optimizer in optimizers:
        copy.optimizers.append((optimizer, {key: _copy_of(values) for key, values in optimizer.state.items()}))
        copy.settings[id(optimizer)] = _settings(optimizer)
    return copy


def _floating(copy: StateCopy) -> dict[tuple[nn.Module, str], Tensor]:
    return {(owner, name): values for owner, name, values in copy.buffers if values.is_floating_point()}


def _buffer_now(owner: nn.Module, name: str) -> Tensor | None:
    buffer = dict(BUFFERS.of(owner).items()).get(name)
    return buffer if isinstance(buffer, Tensor) else None


def _settings(optimizer: torch.optim.Optimizer) -> list[dict[str, float]]:
    return [settings_of(group) for group in optimizer.param_groups]


def _copy_of(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _copy_of(one) for key, one in value.items()}
    if type(value) in (list, tuple, deque):
        return type(value)(_copy_of(one) for one in value)
    return value


def _put_back(holder: Any, key: Any, values: Any) -> None:
    """Make ``holder[key]`` equal to ``values``, in place where a tensor of that shape is there."""
    there = holder.get(key) if isinstance(holder, Mapping) else None
    if isinstance(values, Tensor) and isinstance(there, Tensor) and there.shape == values.shape:
        there.copy_(values)
    elif isinstance(values, Mapping) and isinstance(there, dict):
        for name in [one for one in there if one not in values]:
            del there[name]
        for name, value in values.items():
            _put_back(there, name, value)
    else:
        holder[key] = _copy_of(values)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, (list, tuple, deque)):
        for one in value:
            yield from _tensors(one)


def _averages_of(roots: Sequence[nn.Module]) -> Iterator[nn.Module]:
    """Modules with weights of the same names and shapes as a trained one: a moving average, a target network."""
    wanted = [_shapes(root) for root in roots]
    trained = {id(parameter) for root in roots for parameter in root.parameters()}
    inside = {id(module) for root in roots for module in root.modules()}
    for module in living_modules():
        if id(module) in inside:
            continue
        own = _shapes(module)
        inner = {name.removeprefix("module."): shape for name, shape in own.items()}
        if own and (own in wanted or inner in wanted) and not any(id(one) in trained for one in module.parameters()):
            yield module


def _shapes(module: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in module.named_parameters()}
