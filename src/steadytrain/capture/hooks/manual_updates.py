"""Supports loops that update their weights without a ``torch.optim`` optimizer and mark the update:

::

    watch = steadytrain.watch(model)
    ...
    loss.backward()
    with watch.update(learning_rate=rate):       # the gate is here: a bad step ends before the update
        for parameter in model.parameters():
            parameter.data -= rate * parameter.grad

The watcher works with optimizers, so a placeholder optimizer represents the update. Its ``step`` never runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from steadytrain.core.errors import UsageError

if TYPE_CHECKING:
    from steadytrain.capture.step.watcher import Watcher

Gradients = Mapping[str, Tensor | None] | Sequence[Tensor | None]


class HandWritten(torch.optim.Optimizer):
    """The placeholder optimizer: holds the parameters and the learning rate of the script's own update."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__(parameters, {"lr": None})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        raise RuntimeError("the script makes this update itself")


class UpdateByHand(HandWritten):
    """The placeholder of an update that the script does not mark.

    ``updates_before`` counts those before the first that is recorded, ``passed_over`` all of the run until then.
    """

    updates_before = passed_over = 0


class Updates:
    """The manual updates of one model."""

    def __init__(self, watcher: Watcher, model: nn.Module) -> None:
        self._watcher = watcher
        self._model = model
        self._stand_in: HandWritten | None = None

    @contextmanager
    def update(self, learning_rate: float | None, loss: Tensor | None, gradients: Gradients | None) -> Iterator[None]:
        """Runs the gate before the block and ends the step after it."""
        named = dict(self._model.named_parameters())
        given = _by_name(gradients, named)
        guard, stand_in = self._watcher.guard, None
        kept = {name: named[name].grad for name in given}
        try:
            with guard.part("the gate"):
                stand_in = self._optimizer(list(named.values()))
                stand_in.param_groups[0]["lr"] = learning_rate
                if loss is not None:
                    self._watcher.loss_given(loss)
                for name, gradient in given.items():
                    named[name].grad = gradient
                self._watcher.step_begins(stand_in, (stand_in,), {})
        finally:
            for name, gradient in kept.items():
                named[name].grad = gradient
        yield
        with guard.part("recording a step"):
            if stand_in is not None:
                self._watcher.step_ends(stand_in, (stand_in,), {})

    def _optimizer(self, parameters: Sequence[Tensor]) -> HandWritten:
        """The placeholder optimizer, updated to the current parameters."""
        if self._stand_in is None:
            self._stand_in = HandWritten(parameters)
            self._watcher.watch_model(self._model, self._stand_in)
        self._stand_in.param_groups[0]["params"] = list(parameters)
        return self._stand_in


def _by_name(gradients: Gradients | None, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor | None]:
    """The given gradients by parameter name, checked against the parameters."""
    if gradients is None:
        return {}
    if not isinstance(gradients, Mapping):
        gradients = list(gradients)
        if len(gradients) != len(parameters):
            raise UsageError(f"update: {len(gradients)} gradients for {len(parameters)} parameters; give one for each")
        gradients = dict(zip(parameters, gradients, strict=True))
    for name, gradient in gradients.items():
        if name not in parameters:
            raise UsageError(f"update: {name!r}: no such parameter; named as in model.named_parameters()")
        if gradient is not None and gradient.shape != parameters[name].shape:
            shapes = f"{tuple(gradient.shape)}, the parameter {tuple(parameters[name].shape)}"
            raise UsageError(f"update: the gradient of {name} has shape {shapes}")
    return {name: None if gradient is None else gradient.detach() for name, gradient in gradients.items()}
