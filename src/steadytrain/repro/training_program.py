"""A few steps of training as a value that can be run: the loss as a program, weights, batches, torch's own optimizer.

It stands for what a script does, so that it can be tried, cut down and tried again before it is written. A *loss* here
is a number that a :class:`Program` makes out of weights and the other inputs, its batch.
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
    """Weights that are updated alike, and how."""

    weights: tuple[str, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """How weights are updated: ``optimizer`` is a class of ``torch.optim``, ``state`` what it knows of each weight.

    ``clip`` is the largest norm that all gradients together may have, None for any.
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
    """``program`` has the weights and the first batch as inputs; ``rates`` are learning rates by step and group."""

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
    """Weights and optimizer state before a step, and the loss that the step saw."""

    weights: Mapping[str, Tensor]
    state: Mapping[str, Mapping[str, Any]]
    loss: float


def loss_of(program: Program, weights: Mapping[str, Tensor], batch: Batch) -> Tensor:
    """The loss; whatever torch raises comes through."""
    if program.seeded:
        torch.manual_seed(SEED)
    values = {**program.inputs, **batch, **weights}
    for step in program.steps:
        run_step(step, values, program.device)
    return values[program.target]


def loss_number(program: Program, weights: Mapping[str, Tensor], batch: Batch) -> float:
    """The same as a number; NaN where it cannot be computed."""
    try:
        with torch.no_grad():
            return float(loss_of(program, weights, batch))
    except Exception:  # whatever torch says of shapes that do not fit
        return math.nan


def gradients_of(program: Program, weights: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """The gradient of each weight that the loss depends on."""
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in weights.items()}
    loss_of(program, leaves, batch).backward()  # type: ignore[no-untyped-call]
    return {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def moments(training: Training, programs: Sequence[Program] | None = None) -> Iterator[Moment]:
    """What stands before each step, and after the last one; ``programs`` by step where they differ."""
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
    """The loss of the first batch before the updates and after them; NaN where it cannot be computed."""
    try:
        first, *_, last = moments(training)
    except Exception:  # whatever torch says of what was cut away
        return math.nan, math.nan
    return first.loss, last.loss


def make_optimizer(rule: Rule, leaves: Mapping[str, Tensor]) -> torch.optim.Optimizer:
    """Torch's optimizer over ``leaves``, with copies of its recorded state."""
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
