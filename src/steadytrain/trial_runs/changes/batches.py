"""Other batches: synthetic ones, smaller ones, one micro-batch of an accumulated step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from steadytrain.capture.step.input_recorder import map_tensors, tensors_in
from steadytrain.survey.input_facts import feature_dimension
from steadytrain.trial_runs.changes import LiveChange, at_least, more_than
from steadytrain.trial_runs.function_stand_ins import DISTANCES
from steadytrain.trial_runs.launched_script import Launched

SEED = 20_240_229


@final
@dataclass
class SyntheticBatch(LiveChange):
    """The batches of the recorded ``steps`` become random ones of the same shapes. Numbers have the median and spread
    of the
    finite ones; integers lie between the smallest and the largest present. Ignored labels stay.
    """

    steps: list[int]
    nothing = "the steps are not fed in this trial"
    _loaded: set[int] = field(default_factory=set, init=False, repr=False)

    def check(self) -> None:
        if not self.steps:
            raise ValueError(f"steps {self.steps}: give numbers of recorded steps")

    def fetched(self, process: Launched, step: int | None, batch: Any) -> Any:
        if step is None or step not in self.steps:
            return batch
        self._loaded.add(step)
        return self._other(batch, step)

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if step not in self.steps or process.role != "train":
            return None
        self.touch()
        self.inputs_alone = self.inputs_alone or step not in self._loaded
        other = self._other((tuple(args), dict(kwargs)), step)
        return other[0], other[1]

    def _other(self, value: Any, step: int | None) -> Any:
        generator = torch.Generator().manual_seed(SEED + (step or 0))
        return map_tensors(value, lambda tensor: _synthetic(tensor, generator))


@final
@dataclass
class SmallerBatch(LiveChange):
    """Keeps only the first 1/``divisor`` of the rows of each batch, at least one."""

    divisor: int = 2
    own_batches = True
    nothing = "the batches cannot be cut: they have one row, or do not come from a loader or with the model's arguments"

    def check(self) -> None:
        at_least("divisor", self.divisor, 2)

    def fetched(self, process: Launched, step: int | None, batch: Any) -> Any:
        return _cut(batch, self.divisor, self.touch) if process.role == "train" else batch

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        return None


@final
@dataclass
class AccumulationOne(LiveChange):
    """Only the first of several micro-batches counts, with its gradient times their number."""

    nothing = "steps have a single micro-batch"
    _calls: int = field(default=0, init=False, repr=False)
    _gradients: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False, repr=False)

    def step_begins(self, process: Launched) -> None:
        self._calls, self._gradients = 0, []

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> None:
        self._calls += 1
        if self._calls == 2:
            self._gradients = [(one, one.grad.clone()) for one in process.parameters if one.grad is not None]

    def gate(self, process: Launched) -> None:
        if self._calls > 1:
            self.touch()
            for parameter, gradient in self._gradients:
                parameter.grad = gradient * self._calls


@final
@dataclass
class AccumulationMean(LiveChange):
    """The accumulated gradient is divided by the number of micro-batches."""

    nothing = "steps have a single micro-batch"
    _calls: int = field(default=0, init=False, repr=False)

    def step_begins(self, process: Launched) -> None:
        self._calls = 0

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> None:
        self._calls += 1

    @torch.no_grad()
    def gate(self, process: Launched) -> None:
        if self._calls > 1:
            self.touch()
            for parameter in process.parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(self._calls)


@final
@dataclass
class ScaleTargets(LiveChange):
    """The floating-point targets of regression losses are multiplied by ``factor``.

    The loss compares ``answer`` with ``factor * target``, as if the target were within reach.
    """

    factor: float
    nothing = "no loss has a floating-point target"

    def check(self) -> None:
        more_than("factor", self.factor, 0.0)

    def begin(self, process: Launched) -> None:
        def scaled(original: Any, values: Tensor, target: Any = None, *args: Any, **kwargs: Any) -> Any:
            if process.role == "train" and isinstance(target, Tensor) and target.is_floating_point():
                self.touch()
                target = target * self.factor
            return original(values, target, *args, **kwargs)

        process.functions.replace(DISTANCES, scaled)


@final
@dataclass
class ScaleInputs(LiveChange):
    """The floating-point inputs of the first model call of a step get mean 0 and standard deviation 1 in each feature,
    by the statistics of the first batch."""

    nothing = "the model gets no floating-point input of rows and features"
    _known: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    @torch.no_grad()
    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if number:
            return None
        places = itertools.count()
        given = map_tensors((tuple(args), dict(kwargs)), lambda value: self._scaled(next(places), value))
        return given[0], given[1]

    def _scaled(self, place: int, value: Tensor) -> Tensor:
        if not value.is_floating_point() or value.dim() < 2 or value.grad_fn is not None:
            return value
        if place not in self._known:
            others = [at for at in range(value.dim()) if at != feature_dimension(value)]
            mean, spread = value.mean(others, keepdim=True), value.std(others, keepdim=True, correction=0)
            self._known[place] = mean, torch.where(spread > 0, spread, torch.ones_like(spread))
        mean, spread = self._known[place]
        self.touch()
        return (value - mean) / spread


def _synthetic(tensor: Tensor, generator: torch.Generator) -> Tensor:
    if tensor.is_floating_point():
        finite = tensor[torch.isfinite(tensor)].float()
        mean = float(finite.median()) if finite.numel() else 0.0
        # The median deviation, so that one outlier does not determine the synthetic batch.
        spread = float((finite - mean).abs().median()) * 1.4826 if finite.numel() else 1.0
        drawn = torch.randn(tensor.shape, generator=generator) * (spread or 1.0) + mean
        return drawn.to(tensor.dtype).to(tensor.device)
    if tensor.dtype == torch.bool or tensor.numel() < 2:
        return tensor
    counted = tensor[tensor >= 0]
    if not counted.numel():
        return tensor
    low, high = int(counted.min()), int(counted.max())
    drawn = torch.randint(low, high + 1, tensor.shape, generator=generator).to(tensor.dtype).to(tensor.device)
    return torch.where(tensor >= 0, drawn, tensor)


def _cut(value: Any, divisor: int, touch: Callable[[], None]) -> Any:
    rows = [tensor.shape[0] for tensor in tensors_in(value) if tensor.dim()]
    if not rows or max(rows) < 2:
        return value
    count, kept = max(rows), max(1, math.ceil(max(rows) / divisor))
    touch()
    return map_tensors(value, lambda one: one[:kept] if one.dim() and one.shape[0] == count else one)
