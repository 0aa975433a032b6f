"""Runs a training script unchanged under one published rule against loss spikes, and writes down what it did.

    python benchmarks/guard_references.py RULE RESULT.json SCRIPT [ARGUMENTS]

A rule is ``none`` or one of these, each restated from its paper:

``clip``     the global gradient norm is at most 1 (Pascanu et al. 2013).
``zclip``    a norm whose z-score over a moving mean and deviation is above 2.5 is scaled down to the mean plus 2.5
             squared / z deviations (Kumar et al. 2025, ZClip: alpha 0.97, 25 steps of warm-up).
``skip``     no update whose loss or gradient norm lies 6 standard deviations above the mean of the last 128 (OLMo 2's
             skip-step optimizer, 64 values at least). Non-finite values never enter the window.
``adagc``    each tensor's norm is at most 1.05 times its moving average, decay 0.98, after 100 steps of global clipping
             at 1 (Wang et al. 2025, AdaGC).
``rewind``   a spike restores the state from 100 steps before or earlier, and the batches go on (Chowdhery et al. 2022,
             PaLM, section 5.1). A spike: three losses in a row 6 robust deviations above the median of the last 128, or
             a loss that is not finite.

The result has the losses of all steps, which of them were left out or undone, and how often the rule acted.
"""

from __future__ import annotations

import gc
import json
import math
import runpy
import statistics
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rules_of_practice import is_outlier
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

WINDOW, DEVIATIONS = 128, 6.0
COPY_EVERY, COPIES, REWINDS_MAX = 50, 6, 10


class Rule:
    """Sees every backward and every update of the process."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.lost: set[int] = set()
        self.actions = 0
        self._loss = math.nan

    def backward(self, theirs: Callable[..., None]) -> Callable[..., None]:
        def watched(tensor: Tensor, *arguments: Any, **options: Any) -> None:
            self._loss = float(tensor.detach().float().sum())
            theirs(tensor, *arguments, **options)

        return watched

    def before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.losses.append(self._loss)
        parameters = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
        self.acts(optimizer, parameters)

    def acts(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
        """Change or leave out this update."""

    def leave_out(self, parameters: list[Tensor]) -> None:
        for parameter in parameters:
            parameter.grad = None
        self.lost.add(len(self.losses))
        self.actions += 1


class Clip(Rule):
    def acts(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)) if parameters else 0.0
        self.actions += norm > 1.0


class ZClip(Rule):
    ALPHA, THRESHOLD, WARM_UP = 0.97, 2.5, 25

    def __init__(self) -> None:
        super().__init__()
        self._first: list[float] = []
        self._mean = self._variance = 0.0

    def acts(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
        norm = norm_of(parameters)
        if len(self._first) < self.WARM_UP:
            self._first.append(norm)
            self._mean, self._variance = statistics.fmean(self._first), statistics.pvariance(self._first)
            return
        deviation = math.sqrt(self._variance) + 1e-6
        z = (norm - self._mean) / deviation
        if z > self.THRESHOLD:
            norm = self._mean + self.THRESHOLD**2 / z * deviation
            torch.nn.utils.clip_grad_norm_(parameters, norm)
            self.actions += 1
        self._mean = self.ALPHA * self._mean + (1 - self.ALPHA) * norm
        self._variance = self.ALPHA * self._variance + (1 - self.ALPHA) * (norm - self._mean) ** 2


class SkipStep(Rule):
    def __init__(self) -> None:
        super().__init__()
        self._windows = deque[float](maxlen=WINDOW), deque[float](maxlen=WINDOW)

    def acts(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
        now = (self._loss, norm_of(parameters))
        ordinary = all(self._is_ordinary(value, window) for value, window in zip(now, self._windows, strict=True))
        for value, window in zip(now, self._windows, strict=True):
            if math.isfinite(value):
                window.append(value)
        if not ordinary:
            self.leave_out(parameters)

    @staticmethod
    def _is_ordinary(value: float, window: deque[float]) -> bool:
        if len(window) < WINDOW // 2:
            return math.isfinite(value)
        return value - statistics.fmean(window) <= DEVIATIONS * statistics.stdev(window)


class AdaGC(Rule):
    DECAY, RATIO, WARM_UP = 0.98, 1.05, 100

    def __init__(self) -> None:
        super().__init__()
        self._usual: dict[int, float] = {}

    def acts(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
        warm = len(self.losses) <= self.WARM_UP
        if warm and parameters:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        clipped = False
        for parameter in parameters:
            assert parameter.grad is not None
            norm, usual = float(parameter.grad.norm()), self._usual.get(id(parameter))
            if warm or usual is None:
                self._usual[id(parameter)] = norm if usual is None else min(usual, norm)
                continue
            if norm > self.RATIO * usual:
                parameter.grad.mul_(self.RATIO * usual / norm)
                norm, clipped = self.RATIO * usual, True
            self._usual[id(parameter)] = self.DECAY * usual + (1 - self.DECAY) * norm
        self.actions += clipped


class Rewind(Rule):
    IN_A_ROW, BACK = 3, 100

    def __init__(self) -> None:
        super().__init__()
        self._usual = deque[float](maxlen=WINDOW)
        self._copies: deque[tuple[int, list[tuple[Tensor, Tensor]], list[Any]]] = deque(maxlen=COPIES)
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._high = 0
        self._rewinds = 0

    def acts(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
        step = len(self.losses)
        self._optimizers[id(optimizer)] = optimizer
        if step % COPY_EVERY == 1 and math.isfinite(self._loss):
            self._copy(step)
        high = not math.isfinite(self._loss) or self._is_high()
        self._high = self._high + 1 if high else 0
        if not high:
            self._usual.append(self._loss)
        if (self._high >= self.IN_A_ROW or not math.isfinite(self._loss)) and self._rewinds < REWINDS_MAX:
            self._go_back(step, parameters)

    def _is_high(self) -> bool:
        return len(self._usual) >= WINDOW // 4 and is_outlier(self._loss, list(self._usual))

    def _copy(self, step: int) -> None:
        trained = {
            id(one) for held in self._optimizers.values() for group in held.param_groups for one in group["params"]
        }
        modules = [one for one in gc.get_objects() if isinstance(one, nn.Module)]
        owners = [one for one in modules if any(id(parameter) in trained for parameter in one.parameters())]
        tensors = {id(one): one for owner in owners for one in (*owner.parameters(), *owner.buffers())}
        held = [(one, one.detach().clone()) for one in tensors.values()]
        states = [(one, _cloned(dict(one.state))) for one in self._optimizers.values()]
        self._copies.append((step, held, states))

    @torch.no_grad()
    def _go_back(self, step: int, parameters: list[Tensor]) -> None:
        while len(self._copies) > 1 and self._copies[-1][0] > step - self.BACK:
            self._copies.pop()
        if not self._copies:
            return
        at, held, states = self._copies[-1]
        for tensor, values in held:
            tensor.data.copy_(values)
        for optimizer, state in states:
            optimizer.state.clear()
            optimizer.state.update(_cloned(state))
        self.leave_out(parameters)
        self.lost.update(range(at, step))
        self._high, self._rewinds = 0, self._rewinds + 1


def _cloned(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return {key: _cloned(one) for key, one in value.items()} if isinstance(value, dict) else value


def norm_of(parameters: list[Tensor]) -> float:
    return math.sqrt(sum(float(one.grad.float().norm()) ** 2 for one in parameters if one.grad is not None))


RULES: dict[str, type[Rule]] = {
    "none": Rule, "clip": Clip, "zclip": ZClip, "skip": SkipStep, "adagc": AdaGC, "rewind": Rewind
}  # fmt: skip


def main(rule: str, result: str, script: str, *arguments: str) -> None:
    own = RULES[rule]()
    torch.Tensor.backward = own.backward(torch.Tensor.backward)  # type: ignore[method-assign, assignment]
    register_optimizer_step_pre_hook(own.before_step)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        document = {"losses": own.losses, "lost": sorted(own.lost), "actions": own.actions}
        Path(result).write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
