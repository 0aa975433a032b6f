"""Short trainings for checks: steps of the script's own optimizer on copies, and restore points.

The runner has replaced the script's values with copies, so a check may step freely. To start twice from the same state
it takes a :class:`Point`. Not here: what a training shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.checks.subject.model_check import Batch, CannotError, Subject
from steadytrain.core.torch_private import BUFFERS

ROWS_MAX = {"fast": 4, "full": 16}
PLAIN = (int, float, str, bool, type(None))


@dataclass(frozen=True, eq=False)
class Point:
    """The state of a model at one moment: parameters, buffers, plain attributes of its modules, and random states."""

    tensors: Sequence[tuple[Tensor, Tensor]]
    buffers: Sequence[tuple[nn.Module, str, Tensor, Tensor]]
    attributes: Sequence[tuple[nn.Module, Mapping[str, Any]]]
    random_states: RandomStates

    @staticmethod
    def take(model: nn.Module) -> Point:
        buffers = [
            (module, name, buffer, buffer.detach().clone())
            for module in model.modules()
            for name, buffer in BUFFERS.of(module).items()
            if buffer is not None
        ]
        attributes = []
        for module in model.modules():
            own: dict[str, Any] = {}
            for name, value in vars(module).items():
                if isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and not value.requires_grad:
                    own[name] = value.detach().clone()
                elif isinstance(value, PLAIN) and name != "training":
                    own[name] = value
            attributes.append((module, own))
        tensors = [(parameter, parameter.detach().clone()) for parameter in model.parameters()]
        return Point(tensors, buffers, attributes, RandomStates.take())

    def restore(self) -> None:
        """Restore everything, and clear gradients."""
        with torch.no_grad():
            for tensor, value in self.tensors:
                tensor.copy_(value)
                tensor.grad = None
            for module, name, buffer, value in self.buffers:
                BUFFERS.of(module)[name] = buffer.copy_(value)  # a forward may have replaced the buffer
        self.restore_attributes()
        self.random_states.restore()

    def restore_attributes(self) -> None:
        for module, own in self.attributes:
            for name, value in own.items():
                vars(module)[name] = value.clone() if isinstance(value, Tensor) else value


@dataclass(frozen=True, eq=False)
class RandomStates:
    """The generators that training code draws from."""

    torch_state: Tensor
    cuda_states: Sequence[Tensor]
    python_state: Any
    numpy_state: Any

    @staticmethod
    def take() -> RandomStates:
        import numpy

        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return RandomStates(torch.get_rng_state(), cuda, random.getstate(), numpy.random.get_state())

    def restore(self) -> None:
        import numpy

        torch.set_rng_state(self.torch_state)
        if self.cuda_states:
            torch.cuda.set_rng_state_all(list(self.cuda_states))
        random.setstate(self.python_state)
        numpy.random.set_state(self.numpy_state)


def train(
    subject: Subject,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    *,
    rates: Iterable[float] | None = None,
    all_or_none: bool = False,
) -> list[float]:
    """Take a step per batch, clipped like the script's. Returns the losses before each update; ends at a non-finite
    one.

    Args:
        rates: the learning rate of each step for the group with the largest; other groups keep their proportion.
        all_or_none: fewer steps would show nothing, so raise when the time is over.

    Raises:
        CannotError: the time is over, with ``all_or_none``.
    """
    losses: list[float] = []
    groups = optimizer.param_groups
    base = [float(group["lr"]) for group in groups]
    top = max(base) or 1.0
    planned = iter(rates) if rates is not None else None
    for batch in batches:
        if all_or_none and losses and subject.time_left() < 0.0:
            more = "" if subject.thorough else "; --full gives more"
            raise CannotError(f"its time was over after {len(losses)} steps{more}")
        if planned is not None:
            rate = next(planned, None)
            if rate is None:
                break
            for group, own in zip(groups, base, strict=True):
                group["lr"] = rate * (own / top if own else 1.0)
        optimizer.zero_grad(set_to_none=True)
        loss = subject.loss(batch)
        losses.append(float(loss.detach()))
        if not torch.isfinite(loss.detach()):
            break
        loss.backward()  # type: ignore[no-untyped-call]
        if subject.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], subject.clip_norm)
        optimizer.step()
    return losses


def few_rows(subject: Subject) -> list[Batch]:
    """The batches reduced to some rows if rows are known, so that a step costs a fraction of the script's own."""
    most = ROWS_MAX["full" if subject.thorough else "fast"]
    return [_cut(batch, most) for batch in subject.batches]


def _cut(batch: Batch, most: int) -> Batch:
    if batch.rows is None or batch.rows <= most:
        return batch
    try:
        return batch.taken(range(most))
    except CannotError:
        return batch


def in_turn(batches: Sequence[Batch], steps: int) -> list[Batch]:
    """``steps`` batches, cycling from the first."""
    return [batches[step % len(batches)] for step in range(steps)]


def gradients(subject: Subject, batch: Batch) -> dict[str, Tensor]:
    """The gradient of each trained parameter on a batch, by name. Omits parameters without one."""
    named = dict(subject.model.named_parameters())
    for parameter in named.values():
        parameter.grad = None
    subject.loss(batch).backward()  # type: ignore[no-untyped-call]
    found = {name: p.grad.detach().clone() for name, p in named.items() if p.grad is not None}
    for parameter in named.values():
        parameter.grad = None
    return found


def peak_rate(subject: Subject) -> float:
    """The highest learning rate in the optimizer's settings; for a schedule that starts low this is ``initial_lr``.

    Raises:
        CannotError: there is no optimizer, or its learning rate is 0.
    """
    if not subject.optimizers:
        raise CannotError("no optimizer was found")
    rates = [
        max(float(group.get("initial_lr", 0.0)), float(group.get("lr", 0.0)))
        for optimizer in subject.optimizers
        for group in optimizer.param_groups
    ]
    if not any(rates):
        raise CannotError("the learning rate of the optimizer is 0")
    return max(rates)


def at_peak(subject: Subject) -> torch.optim.Optimizer:
    """A new optimizer of the script's kind, with each group at its highest rate."""
    optimizer = subject.new_optimizer()
    for group, own in zip(optimizer.param_groups, subject.optimizers[0].param_groups, strict=True):
        group["lr"] = max(float(own.get("initial_lr", 0.0)), float(own.get("lr", 0.0)))
    return optimizer


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The norm of the difference over the norm of ``one``, over all common tensors, in float64."""
    difference = total = 0.0
    for name in one.keys() & other.keys():
        a, b = one[name].detach().double(), other[name].detach().double()
        difference += float((a - b).square().sum())
        total += float(a.square().sum())
    return (difference / total) ** 0.5 if total else float(difference > 0.0)
