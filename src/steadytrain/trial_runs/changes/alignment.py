"""Changes that measure something other than the script's loss: shifted labels, a shuffled input column, a balanced
router.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from steadytrain.capture.looks.token_inputs import tokens_beside
from steadytrain.capture.step.input_recorder import map_tensors
from steadytrain.survey.tensor_values import is_ids
from steadytrain.trial_runs.changes import LiveChange, OtherMeasure, at_least, modules_called
from steadytrain.trial_runs.function_stand_ins import DISTANCES
from steadytrain.trial_runs.launched_script import Launched

SEED = 20_240_511
LOOKED_UP_MAX = 8
"""Embedding look-ups of one model call to keep: tokens, positions, token types, a decoder's."""

DRAWN_MAX = 8
"""Draws of noise to keep: those of a step."""

MEASURED_SHARE = 0.25
"""Share of a trial's steps, at its end, over which measurements are averaged."""


@final
@dataclass
class ShiftLabels(OtherMeasure):
    """The targets of a token cross-entropy become the next tokens of the model's inputs."""

    nothing = "no cross-entropy has a target for each place of the model's input ids"
    _ids: list[Tensor] = field(default_factory=list, init=False, repr=False)
    _looked_up: list[Tensor] = field(default_factory=list, init=False, repr=False)

    def step_begins(self, process: Launched) -> None:
        self._ids, self._looked_up = [], []

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> None:
        self._ids = [one for one in (*args, *dict(kwargs).values()) if is_ids(one)]
        self._looked_up = []

    def begin(self, process: Launched) -> None:
        def looked_up(original: Any, ids: Tensor, *args: Any, **kwargs: Any) -> Any:
            if is_ids(ids) and len(self._looked_up) < LOOKED_UP_MAX:
                self._looked_up.append(ids)
            return original(ids, *args, **kwargs)

        def aligned(original: Any, logits: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
            ignored = int(kwargs.get("ignore_index", -100))
            next_tokens = self._next_tokens(target, ignored)
            if next_tokens is None:
                return original(logits, target, *args, **kwargs)
            self.touch()
            return original(logits, next_tokens if self.measures(process) else target, *args, **kwargs)

        process.functions.replace((functional.embedding,), looked_up)
        process.functions.replace((functional.cross_entropy,), aligned)

    def _next_tokens(self, target: Tensor, ignored: int) -> Tensor | None:
        if target.is_floating_point():
            return None
        ids = tokens_beside(target, self._ids, self._looked_up)
        if ids is None or target.numel() < 2 * ids.shape[0]:
            return None
        rows, length = ids.shape
        width = target.numel() // rows
        after = torch.full((rows, width), ignored, dtype=target.dtype, device=target.device)
        there = min(width, length - 1)
        after[:, :there] = ids[:, 1 : 1 + there].to(target.dtype)
        return after.reshape(target.shape)


@final
@dataclass
class SameNoise(OtherMeasure):
    """A squared error whose target was drawn in this step compares with the other noise of the same shape that was."""

    of_functions = True  # noise is drawn before the model is called
    nothing = "no target of a loss is noise, of which the step drew two of one shape"
    _drawn: deque[Tensor] = field(default_factory=lambda: deque(maxlen=DRAWN_MAX), init=False, repr=False)

    def begin(self, process: Launched) -> None:
        def drawn(original: Any, *args: Any, **kwargs: Any) -> Any:
            noise = original(*args, **kwargs)
            self._drawn.append(noise)
            return noise

        def compared(original: Any, values: Any, target: Any = None, *args: Any, **kwargs: Any) -> Any:
            alike = [one for one in self._drawn if isinstance(target, Tensor) and one.shape == target.shape]
            others = [one for one in alike if one is not target]
            if others and len(others) < len(alike):
                self.touch()
                self._drawn.clear()
                target = others[-1] if self.measures(process) else target
            return original(values, target, *args, **kwargs)

        process.functions.replace((torch.randn, torch.randn_like), drawn)
        process.functions.replace(DISTANCES, compared)


@final
@dataclass
class ShuffleColumn(LiveChange):
    """The values of one ``column`` of the model's first input table are permuted over the batch rows, in training steps
    and
    in probes.
    """

    column: int
    nothing = "the model is given no table of values that has this column"

    def check(self) -> None:
        at_least("column", self.column, 0)

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if number:
            return None
        given, named = list(args), dict(kwargs)
        for holder, place in (*((given, at) for at in range(len(given))), *((named, name) for name in named)):
            value = holder[place]  # type: ignore[index]
            if isinstance(value, Tensor) and value.is_floating_point() and value.dim() == 2:
                if value.shape[1] <= self.column or value.shape[0] < 2:
                    return None
                generator = torch.Generator().manual_seed(SEED + (step or 0))
                order = torch.randperm(value.shape[0], generator=generator).to(value.device)
                other = value.detach().clone()
                other[:, self.column] = value.detach()[order, self.column]
                holder[place] = other  # type: ignore[index]
                self.touch()
                return tuple(given), named
        return None


@final
@dataclass
class HideLabels(LiveChange):
    """The model's ``place``-th input of ids [rows, length] comes from another row, in training steps and in probes."""

    place: int
    nothing = "the model is given no such ids"

    def check(self) -> None:
        at_least("place", self.place, 0)

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        given, named, seen = list(args), dict(kwargs), -1
        for holder, place in (*((given, at) for at in range(len(given))), *((named, name) for name in named)):
            value = holder[place]  # type: ignore[index]
            if not isinstance(value, Tensor) or value.is_floating_point() or value.dtype == torch.bool:
                continue
            seen += value.dim() == 2
            if seen == self.place and value.dim() == 2 and value.shape[0] > 1:
                holder[place] = value.roll(1, 0)  # type: ignore[index]
                self.touch()
                return tuple(given), named
        return None


@final
@dataclass
class OffsetTokens(LiveChange):
    """From the recorded step ``since`` on, the ids [rows, length] of the model's inputs are less by ``offset``.

    With ``targets`` so are the integer targets of classification losses that are not ignored.
    """

    offset: int
    since: int
    targets: bool = True
    nothing = "the model is given no ids"
    _on: bool = field(default=False, init=False, repr=False)

    def begin(self, process: Launched) -> None:
        def less(original: Any, scores: Tensor, target: Any = None, *args: Any, **kwargs: Any) -> Any:
            if self._on and self.targets and isinstance(target, Tensor) and not target.is_floating_point():
                ignored = target == kwargs.get("ignore_index", -100)
                target = torch.where(ignored, target, (target - self.offset).clamp(min=0))
            return original(scores, target, *args, **kwargs)

        process.functions.replace([functional.cross_entropy, functional.nll_loss], less)

    def call(self, process: Launched, step: int | None, number: int, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        self._on = step is None or step >= self.since
        if not self._on:
            return None

        def moved(value: Tensor) -> Tensor:
            if value.is_floating_point() or value.dtype == torch.bool or value.dim() != 2:
                return value
            self.touch()
            return torch.where(value < 0, value, (value - self.offset).clamp(min=0))

        given = map_tensors((tuple(args), dict(kwargs)), moved)
        return given[0], given[1]


@final
@dataclass
class BalanceRouter(LiveChange):
    """The logits of ``routers`` get a bias for each expert. After every call the bias moves against the load: by
    ``speed``
    spreads of the logits for each fair share above or below. With speed 0 the change only measures.

    ``load`` is the largest expert load over the fair share, averaged over the last quarter of the steps (arXiv
    2408.15664).
    """

    routers: list[str]
    speed: float
    nothing = "no linear layer with such a name is called"
    _loads: list[float] = field(default_factory=list, init=False, repr=False)
    _biases: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)
    _attached: bool = field(default=False, init=False, repr=False)

    def check(self) -> None:
        at_least("speed", self.speed, 0.0)
        if not self.routers:
            raise ValueError("routers: give at least one name")

    def step_begins(self, process: Launched) -> None:
        # If a script calls its modules one by one, all are known only at its first update.
        wanted = [module for module in modules_called(process, self.routers) if isinstance(module, nn.Linear)]
        held = weakref.ref(process)
        for module in wanted if not self._attached else ():
            module.register_forward_hook(lambda module, args, output: self._balanced(held(), module, output))
        self._attached = self._attached or bool(wanted)

    def measured(self) -> dict[str, float]:
        if not self._loads:
            return {}
        last = self._loads[-max(1, round(len(self._loads) * MEASURED_SHARE)) :]
        return {"load": sum(last) / len(last)}

    def _balanced(self, process: Launched | None, module: nn.Module, logits: Tensor) -> Tensor:
        if process is None or logits.shape[-1] < 2:
            return logits
        experts = logits.shape[-1]
        bias = self._biases.setdefault(id(module), torch.zeros(experts, device=logits.device))
        result = logits + bias.to(logits.dtype) if self.speed else logits
        if process.role == "train" and logits.requires_grad:
            self.touch()
            with torch.no_grad():
                flat = result.detach().reshape(-1, experts).float()
                load = torch.bincount(flat.argmax(-1), minlength=experts).float() / len(flat) * experts
                self._loads.append(float(load.max()))
                # The spread of one expert's logits over the tokens: a bias of this size changes some choices.
                spread = logits.detach().reshape(-1, experts).float().std(0).mean().nan_to_num(0.0)
                self._biases[id(module)] = bias - self.speed * spread * (load - 1)
        return result
