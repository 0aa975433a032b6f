"""Short trainings on copies: one or a few batches, with an optimizer of our own and without dropout."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steadytrain.checks.subject.model_check import Batch, CannotError, Subject

RATES = (3e-3, 1e-2, 3e-4)
"""Learning rates of Adam to try; the one with the best first steps continues."""

TRIAL_STEPS = 12
NORM_MAX = 1.0


@dataclass(frozen=True)
class Fit:
    """The losses before each step, the learning rate that was chosen, and whether time ran out."""

    losses: tuple[float, ...]
    rate: float
    cut_off: bool

    @property
    def first(self) -> float:
        return self.losses[0]

    @property
    def last(self) -> float:
        """The lowest of the last three losses, because a single step may jump."""
        return min(self.losses[-3:])

    @property
    def still_falling(self) -> bool:
        tail = self.losses[-max(4, len(self.losses) // 4) :]
        half = len(tail) // 2
        return sum(tail[half:]) / len(tail[half:]) < 0.98 * sum(tail[:half]) / half


def without_dropout(model: nn.Module) -> None:
    """Switch dropout off. All other modules keep their mode; the workbench restores the modes."""
    for module in model.modules():
        if "Dropout" in type(module).__name__ or "DropPath" in type(module).__name__:
            module.eval()
            if type(vars(module).get("p")) is float:
                setattr(module, "p", 0.0)  # noqa: B010 - read by attention that drops out by itself
        for name in ("dropout", "attention_dropout", "dropout_p", "dropout_prob", "attn_dropout"):
            if type(vars(module).get(name)) is float:
                setattr(module, name, 0.0)
        if isinstance(module, nn.RNNBase):
            module.dropout = 0.0


def trained_parameters(subject: Subject) -> list[Tensor]:
    """The trained parameters: those of the script's optimizers, or without one all that require gradients."""
    held = list(subject.trainable().values()) if subject.optimizers else list(subject.model.parameters())
    found = [parameter for parameter in held if parameter.requires_grad]
    if not found:
        raise CannotError("no parameter is trained: see gradient-coverage")
    return found


def fit(
    subject: Subject,
    batches: Sequence[Batch],
    *,
    steps: int,
    seconds: float,
    stop_below: float = -math.inf,
    rates: Sequence[float] = RATES,
    around: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> Fit:
    """Train on ``batches`` in turn. Each of ``rates`` gets a few steps from the start, and the best one continues.

    Args:
        subject: its weights are the start, and stay trained.
        batches: used in this order, cyclically.
        steps: most steps with the chosen rate.
        seconds: time limit for everything.
        stop_below: stop when the loss is below this.
        rates: learning rates of Adam.
        around: context manager around each forward.
    """
    parameters = trained_parameters(subject)
    deadline = time.monotonic() + seconds
    start = [parameter.detach().clone() for parameter in parameters]
    buffers = {id(b): (b, b.detach().clone()) for b in subject.model.buffers()}

    def again() -> None:
        with torch.no_grad():
            for parameter, values in zip(parameters, start, strict=True):
                parameter.copy_(values)
            for buffer, values in buffers.values():
                buffer.copy_(values)

    ends: dict[float, float] = {}
    if len(rates) > 1:
        for rate in rates:
            trial = _descend(subject, batches, parameters, rate, TRIAL_STEPS, deadline, stop_below, around)
            ends[rate] = min(trial.losses[-3:]) if all(map(math.isfinite, trial.losses)) else math.inf
            again()
            if trial.cut_off:
                break
    best = min(ends, key=ends.__getitem__) if ends else rates[0]
    return _descend(subject, batches, parameters, best, steps, deadline, stop_below, around)


def _descend(
    subject: Subject,
    batches: Sequence[Batch],
    parameters: Sequence[Tensor],
    rate: float,
    steps: int,
    deadline: float,
    stop_below: float,
    around: Callable[[], contextlib.AbstractContextManager[object]],
) -> Fit:
    optimizer = torch.optim.Adam(parameters, lr=rate, betas=(0.9, 0.98))
    losses: list[float] = []
    for step in range(steps):
        with around():
            loss = subject.loss(batches[step % len(batches)])
        losses.append(float(loss.detach()))
        if not loss.requires_grad or not math.isfinite(losses[-1]) or losses[-1] < stop_below:
            return Fit(tuple(losses), rate, cut_off=False)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(parameters), NORM_MAX)
        optimizer.step()
        if time.monotonic() > deadline:
            return Fit(tuple(losses), rate, cut_off=True)
    return Fit(tuple(losses), rate, cut_off=False)


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put all modules into evaluation mode, and restore their modes afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def few_rows(batch: Batch, rows_max: int) -> Batch:
    """The first rows of a batch, or the whole batch if its rows are unknown."""
    if batch.rows is None or batch.rows <= rows_max:
        return batch
    try:
        return batch.taken(range(rows_max))
    except CannotError:
        return batch
