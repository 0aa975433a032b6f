"""Skips the update of a step whose loss or gradients are not finite, and lets the training go on (policy ``skip``).

Torch's hook before a step may replace its arguments. The first one is the optimizer: :func:`without_parameters` puts a
copy there that holds none of the script's parameters and no state. The script's ``step`` runs and changes nothing:
weights, moments and step counters keep their bits, and buffers get back the values from before the forward. Batches,
random state and learning-rate schedules go on, as if a gradient scaler had skipped the step. Where the step evaluates a
closure, the gate is inside of it: then the optimizer, one of torch's own, finds no gradients.

Not here: the decision that a step is bad (``gate``), and how a run ends where a skip is not possible (``stopping``).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from steadytrain.capture.hooks.manual_updates import HandWritten
from steadytrain.capture.snapshots.good_state import nonfinite_parameters
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.optimizer_streams import Stream

SPENT = "{count} updates in a row were skipped, as many as may be (--max-skips)"
CLOSURE = "its optimizer evaluates a closure and is not one of torch.optim that can skip it exactly"
HAND_WRITTEN = "the script makes the update itself"
WRAPPED = "{outer} steps the optimizer {inner} inside its own step, so an update cannot be skipped exactly"
DAMAGED = "the weights hold NaN or Inf already, so skipping cannot help"
MOVED = "the weights moved within this step already"
DAMAGED_BUFFERS = "the run rested, so the buffers that its forward left not finite cannot be restored"


def is_spent(why_not: str) -> bool:
    """Whether an update cannot be skipped only because as many as allowed were skipped before it."""
    return why_not.endswith(SPENT.partition("}")[2])


class Skipping:
    """Counts the skips of each stream and replaces the arguments of the optimizers' steps."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._in_a_row: dict[str, tuple[int, int]] = {}
        self._now: Stream | None = None
        self._withheld: list[tuple[Tensor, Tensor | None]] = []
        self.count = 0
        """The number of skipped updates of this process."""

    def why_not(
        self, stream: Stream, optimizer: torch.optim.Optimizer, measured: Measurement, *, can_rerun: bool
    ) -> str | None:
        """Why the update of this step cannot be skipped; None if it can. ``can_rerun``: the step has no closure."""
        run, most = self._run, self._run.settings.max_skips
        if measured.left_out is not None and measured.left_out.in_a_row_max is not None:
            most = measured.left_out.in_a_row_max
        if not can_rerun and not all(_leaves_out_missing(one) for one in stream.optimizers):
            return CLOSURE
        if isinstance(optimizer, HandWritten):
            return HAND_WRITTEN
        if run.seen.moved_weights:
            return MOVED
        for one in stream.optimizers:
            inner = _wrapped(one)
            if inner is not None:
                return WRAPPED.format(outer=type(one).__name__, inner=type(inner).__name__)
        if self.in_a_row(stream, measured.record.step) >= most:
            return SPENT.format(count=most)
        # Ranks may hold different parts of a model: they have to decide alike.
        if not stream.together and nonfinite_parameters(stream):
            return DAMAGED
        if run.seen.rested and _bad_buffer(stream):
            return DAMAGED_BUFFERS
        return None

    def in_a_row(self, stream: Stream, step: int) -> int:
        """The number of skipped updates right before ``step``."""
        last, count = self._in_a_row.get(stream.name, (0, 0))
        return count if last == step - 1 else 0

    def begin(self, stream: Stream, step: int) -> int:
        """The update of ``step`` is skipped. Returns how many have been skipped in a row, this one included."""
        count = self.in_a_row(stream, step) + 1
        self._in_a_row[stream.name] = (step, count)
        self._now = stream
        self.count += 1
        return count

    def withhold(self, stream: Stream) -> None:
        """The step evaluates a closure and is skipped: its optimizers find no gradients. ``give_back`` ends it."""
        held = [one for one in stream.parameters if one.grad is not None]
        self._withheld = [(one, one.grad) for one in held]
        for parameter in held:
            parameter.grad = None

    def give_back(self) -> None:
        """The step is over: the gradients are where the script left them."""
        for parameter, gradient in self._withheld:
            if parameter.grad is None:
                parameter.grad = gradient
        self._withheld = []

    def over(self, stream: Stream) -> None:
        """The next step of ``stream`` is at its gate."""
        if self._now is stream:
            self._now = None

    def arguments(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The arguments of ``step`` that skip the update; None if it is not skipped."""
        if self._now is None or not any(one is optimizer for one in self._now.optimizers):
            return None
        return (without_parameters(optimizer), *args[1:]), kwargs


def without_parameters(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """A copy of ``optimizer`` whose groups have the same settings and no gradient to apply, and whose state is empty.

    Each group keeps one parameter, of one element and without a gradient: some optimizers look at the first one.
    """
    copy: torch.optim.Optimizer = object.__new__(type(optimizer))
    vars(copy).update({name: _copied(value) for name, value in vars(optimizer).items()})
    copy.state = defaultdict(dict)
    copy.param_groups = [
        {name: _copied(value) for name, value in group.items()} | {"params": [*map(_alone, group["params"][:1])]}
        for group in optimizer.param_groups
    ]
    return copy


def _leaves_out_missing(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it makes no update, and counts no step, where a parameter has no gradient: torch's own do, except one."""
    kind = type(optimizer)
    return f"{kind.__module__}.".startswith("torch.optim.") and not isinstance(optimizer, torch.optim.LBFGS)


def _alone(parameter: Tensor) -> Tensor:
    shape = (1,) * parameter.dim()
    return torch.zeros(shape, dtype=parameter.dtype, device=parameter.device).requires_grad_(parameter.requires_grad)


def _copied(value: Any) -> Any:
    return value.detach().clone() if type(value) is Tensor else value


def _wrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer | None:
    """An optimizer that ``optimizer`` holds as an attribute."""
    return next((value for value in vars(optimizer).values() if isinstance(value, torch.optim.Optimizer)), None)


def _bad_buffer(stream: Stream) -> bool:
    return any(
        buffer.is_floating_point() and not bool(torch.isfinite(buffer).all())
        for root in stream.roots()
        for buffer in root.buffers()
    )
