"""Clipping at levels that follow the gradient norms of the run: for each tensor (AdaGC), or globally (ZClip)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from steadytrain.capture.tensors.dense import dense_values
from steadytrain.capture.tensors.statistics.norms import l2_norms
from steadytrain.trial_runs.changes import LiveChange, at_least, more_than
from steadytrain.trial_runs.launched_script import Launched

WARM_UP_NORM = 1.0
"""The global norm of the warm-up where the run has shown none; lambda_abs of AdaGC."""

EPSILON = 1e-6
"""Added to the standard deviation before a division by it, as in ZClip."""


@dataclass
class _Levels:
    """The averages of one device: a float64 for each tensor, NaN for one that had no gradient yet."""

    positions: dict[int, int]
    values: Tensor


@final
@dataclass
class ClipPerTensor(LiveChange):
    """Clips each tensor's gradient at ``factor`` times the average of its own clipped norms (AdaGC, arXiv 2502.11034).

    For the first ``warm_up`` steps all gradients are clipped at one global norm (``level``; 0 for the usual one of the
    run) and the average is the smallest clipped norm so far. Then tensor i with norm n is multiplied by
    ``min(1, factor * average_i / n)``, and ``average_i = decay * average_i + (1 - decay) * clipped norm``. A gradient
    of zeros changes no average, unlike there: a tensor that gets one in the warm-up could never learn again.
    """

    factor: float = 1.05
    decay: float = 0.98
    warm_up: int = 100
    level: float = 0.0
    nothing = "no parameter has a dense gradient"
    _steps: int = field(default=0, init=False, repr=False)
    _level: float = field(default=0.0, init=False, repr=False)
    _levels: dict[torch.device, _Levels] = field(default_factory=dict, init=False, repr=False)

    def check(self) -> None:
        at_least("factor", self.factor, 1.0)
        at_least("warm_up", self.warm_up, 1)
        at_least("level", self.level, 0.0)
        if not 0.0 < self.decay < 1.0:
            raise ValueError(f"decay {self.decay}: must lie between 0 and 1")

    @torch.no_grad()
    def gate(self, process: Launched) -> None:
        held: dict[torch.device, list[tuple[int, Tensor]]] = {}
        for parameter in process.parameters:
            gradient = parameter.grad
            if gradient is not None and gradient.layout is torch.strided and dense_values(gradient) is not None:
                held.setdefault(gradient.device, []).append((id(parameter), gradient))
        warms = self._steps < self.warm_up
        shrink = self._shrink(process) if warms else 1.0
        for device, gradients in held.items():
            self.touch()
            factors = self._factors(device, gradients, process.gradient_scale, shrink, warms=warms)
            for (_, gradient), factor in zip(gradients, factors.unbind(), strict=True):
                gradient.mul_(factor)
        self._steps += 1

    def _shrink(self, process: Launched) -> float:
        """The one factor of a step of the warm-up."""
        norm = process.applied_norm()
        self._level = self._level or self.level or process.usual_norm() or WARM_UP_NORM
        return min(1.0, self._level / norm) if norm else 1.0

    def _factors(
        self, device: torch.device, gradients: list[tuple[int, Tensor]], scale: float, shrink: float, *, warms: bool
    ) -> Tensor:
        """What the gradients are multiplied by, without a copy to the host; the averages move on."""
        norms = torch.stack(l2_norms([values for _, one in gradients if (values := dense_values(one)) is not None]))
        norms = norms.to(_precise(device)) / scale
        levels, at = self._places(device, [key for key, _ in gradients], norms)
        level = levels.values[at]
        if warms:
            factors = torch.full_like(norms, shrink)
            clipped = norms * factors
            moved = torch.fmin(level, clipped)
        else:
            bound = torch.where(level.isnan(), torch.inf, self.factor * level)
            factors = (bound / norms).nan_to_num(nan=1.0, posinf=1.0).clamp(max=1.0)
            clipped = norms * factors
            moved = torch.where(level.isnan(), clipped, self.decay * level + (1 - self.decay) * clipped)
        levels.values[at] = torch.where(norms > 0, moved, level)
        return factors

    def _places(self, device: torch.device, keys: list[int], norms: Tensor) -> tuple[_Levels, slice | Tensor]:
        levels = self._levels.setdefault(device, _Levels({}, norms.new_empty(0)))
        new = [key for key in keys if key not in levels.positions]
        for key in new:
            levels.positions[key] = len(levels.positions)
        if new:
            levels.values = torch.cat([levels.values, norms.new_full((len(new),), math.nan)])
        positions = [levels.positions[key] for key in keys]
        if positions == list(range(len(levels.positions))):
            return levels, slice(None)
        return levels, torch.tensor(positions, device=device)


@final
@dataclass
class ClipByZScore(LiveChange):
    """Clips the global gradient norm where it is an outlier among the last ones (ZClip, arXiv 2504.02507).

    Mean m and variance of the clipped norms follow with ``decay``; the first ``warm_up`` norms give their first values.
    A norm with z = (norm - m) / s above ``z_max`` is clipped at m + s * z_max**2 / z: the farther out, the smaller.
    """

    z_max: float = 2.5
    decay: float = 0.97
    warm_up: int = 25
    nothing = "no gradient norm was an outlier"
    _mean: float = field(default=0.0, init=False, repr=False)
    _variance: float = field(default=-1.0, init=False, repr=False)
    _first: list[float] = field(default_factory=list, init=False, repr=False)

    def check(self) -> None:
        more_than("z_max", self.z_max, 0.0)
        at_least("warm_up", self.warm_up, 2)
        if not 0.0 < self.decay < 1.0:
            raise ValueError(f"decay {self.decay}: must lie between 0 and 1")

    def begin(self, process: Launched) -> None:
        for norm in process.norms_seen()[-self.warm_up :]:
            self._learn(norm)

    def gate(self, process: Launched) -> None:
        norm = process.applied_norm()
        if norm is None or not math.isfinite(norm):
            return
        if self._variance >= 0:
            deviation = math.sqrt(self._variance)
            z = (norm - self._mean) / (deviation + EPSILON)
            if z > self.z_max:
                level = self._mean + deviation * self.z_max**2 / z
                process.scale_gradients(level / norm)
                self.touch()
                norm = level
        self._learn(norm)

    def _learn(self, norm: float) -> None:
        """One more clipped norm: the first ones give the mean and the variance, then both follow."""
        if self._variance < 0:
            self._first.append(norm)
            if len(self._first) == self.warm_up:
                self._mean = math.fsum(self._first) / self.warm_up
                self._variance = math.fsum((one - self._mean) ** 2 for one in self._first) / self.warm_up
                self._first.clear()
            return
        self._mean = self.decay * self._mean + (1 - self.decay) * norm
        self._variance = self.decay * self._variance + (1 - self.decay) * (norm - self._mean) ** 2


def _precise(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
