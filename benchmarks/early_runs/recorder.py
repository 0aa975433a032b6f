"""Records what a watched run would show of each step, without watching it: loss, gradient norm and rate.

As under watch, an optimizer that is fed by a backward of its own is a stream of its own, and the loss of a step is the
mean of the losses that were backpropagated for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


@dataclass
class Curves:
    """The steps of one optimizer."""

    loss: list[float] = field(default_factory=list)
    gradient_norm: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, list[float]]:
        return {name: [float(f"{value:.7g}") for value in values] for name, values in vars(self).items()}


def recorded(run: Callable[[], object]) -> list[Curves]:
    """The curves of each optimizer that ``run`` steps; those of optimizers that are made anew go on."""
    with _recording() as streams:
        run()
    return [curves for curves in streams if curves.loss]


@contextmanager
def _recording() -> Iterator[list[Curves]]:
    streams: list[Curves] = []
    of_parameter: dict[int, Curves] = {}
    losses: list[float] = []
    kept: list[Any] = []
    norms: list[float] = []
    backward = torch.Tensor.backward

    def seen(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if tensor.numel() == 1:
            losses.append(float(tensor.detach()))
        backward(tensor, *args, **kwargs)

    def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        norms[:] = [_norm(optimizer)]

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not losses:
            return
        first = optimizer.param_groups[0]["params"][0]
        curves = of_parameter.get(id(first))
        if curves is None:
            curves = of_parameter[id(first)] = Curves()
            kept.append(first)  # so that its number is not given to another
            streams.append(curves)
        curves.loss.append(sum(losses) / len(losses))
        curves.gradient_norm.append(norms[0] if norms else 0.0)
        curves.learning_rate.append(float(optimizer.param_groups[0]["lr"]))
        losses.clear()

    torch.Tensor.backward = seen  # type: ignore[assignment, method-assign]
    hooks = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
    try:
        yield streams
    finally:
        torch.Tensor.backward = backward  # type: ignore[method-assign]
        for hook in hooks:
            hook.remove()


def _norm(optimizer: torch.optim.Optimizer) -> float:
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    if not gradients:
        return 0.0
    return float(torch.linalg.vector_norm(torch.stack([g.detach().double().norm() for g in gradients])))
