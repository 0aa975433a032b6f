"""A few training steps as a runnable value: the loss as a program, weights, batches, and torch's own optimizer.

It models the script, so that it can be tried, cut and tried again before it is written. A *loss* is a number that a
:class:`Program` computes from weights and its other inputs, the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steadytrain.repro.program import SEED, Program, run_step

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Group:
    """A parameter group: its weights and settings."""

    weights: tuple[str, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """The update rule. ``optimizer`` is a class of ``torch.optim``; ``state`` is its state for each weight.

    ``clip`` is the limit on the global gradient norm; None for no clipping.
    """

    optimizer: str
    groups: tuple[Group, ...]
    state: Mapping[str, Mapping[str, Any]]
    clip: float | None

    @property
    def weights(self) -> tuple[str, ...]:
        return tuple(name for group in self.groups for name in group.weights)


@dataclass(frozen=True)
class Training:
    """``program`` has the weights and the first batch as inputs. ``rates`` are learning rates by step and group."""

    program: Program
    rule: Rule
    batches: tuple[Batch, ...]
    rates: tuple[tuple[float, ...], ...]

    @property
    def weights(self) -> dict[str, Tensor]:
        return {name: self.program.inputs[name] for name in self.rule.weights}

    def starting_with(self, weights: Mapping[str, Tensor], state: Mapping[str, Mapping[str, Any]]) -> Training:
        program = self.program.given({**self.program.inputs, **weights})
        return replace(self, program=program, rule=replace(self.rule, state=state))


@dataclass(frozen=True)
class Moment:
    """Weights and optimizer state before a step, and the loss of the step."""

    weights: Mapping[str, Tensor]
    state: Mapping[str, Mapping[str, Any]]
    loss: float


def loss_of(program: Program, weights: Mapping[str, Tensor], batch: Batch) -> Tensor:
    """The loss as a tensor. Errors of torch propagate."""
    if program.seeded:
        torch.manual_seed(SEED)
    values = {**program.inputs, **batch, **weights}
    for step in program.steps:
        run_step(step, values, program.device)
    return values[program.target]


def loss_number(program: Program, weights: Mapping[str, Tensor], batch: Batch) -> float:
    """The loss as a number; NaN if it fails."""
    try:
        with torch.no_grad():
            return float(loss_of(program, weights, batch))
    except Exception:  # for example, shapes that do not fit
        return math.nan


def gradients_of(program: Program, weights: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """The gradient of each weight on which the loss depends."""
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in weights.items()}
    loss_of(program, leaves, batch).backward()  # type: ignore[no-untyped-call]
    return {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def moments(training: Training, programs: Sequence[Program] | None = None) -> Iterator[Moment]:
    """The state before each step and after the last one. ``programs`` gives one program a step if they differ."""
    program = training.program
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in training.weights.items()}
    optimizer = make_optimizer(training.rule, leaves)
    for number, batch in enumerate(training.batches):
        current = program if programs is None else programs[number]
        optimizer.zero_grad()
        loss = loss_of(current, leaves, batch)
        yield _moment(leaves, optimizer, float(loss.detach()))
        loss.backward()  # type: ignore[no-untyped-call]
        if training.rule.clip is not None:
            torch.nn.utils.clip_grad_norm_(list(leaves.values()), training.rule.clip)
        for group, rate in zip(optimizer.param_groups, training.rates[number], strict=True):
            group["lr"] = rate
        optimizer.step()
    yield _moment(leaves, optimizer, loss_number(program, leaves, training.batches[0]))


def probe(training: Training) -> tuple[float, float]:
    """The loss of the first batch before and after the updates; NaN if it fails."""
    try:
        first, *_, last = moments(training)
    except Exception:  # for example, shapes that do not fit after a cut
        return math.nan, math.nan
    return first.loss, last.loss


def make_optimizer(rule: Rule, leaves: Mapping[str, Tensor]) -> torch.optim.Optimizer:
    """A torch optimizer over ``leaves``, with copies of its recorded state."""
    kind = getattr(torch.optim, rule.optimizer)
    groups = [{"params": [leaves[name] for name in group.weights], **group.settings} for group in rule.groups]
    optimizer: torch.optim.Optimizer = kind(groups, lr=rule.groups[0].settings["lr"])
    for name, values in rule.state.items():
        if name in leaves:
            copies = {key: one.clone() if isinstance(one, Tensor) else one for key, one in values.items()}
            optimizer.state[leaves[name]] = copies
    return optimizer


def _moment(leaves: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, loss: float) -> Moment:
    state = {
        name: {key: one.clone() if isinstance(one, Tensor) else one for key, one in optimizer.state[leaf].items()}
        for name, leaf in leaves.items()
        if leaf in optimizer.state
    }
    return Moment({name: leaf.detach().clone() for name, leaf in leaves.items()}, state, loss)
