"""Reads the step counts of scheduler and optimizer before a stream's first update: they show what a resume loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from steadytrain.capture.snapshots.loaded_states import schedulers_of
from steadytrain.capture.step.optimizer_streams import Stream


def counted_rows(stream: Stream) -> Iterator[tuple[str, float]]:
    """Rows before the first update of ``stream``, for optimizers that have a scheduler and keep moments.

    ``schedule-at:CLASS`` is the step count of the most advanced scheduler. ``moments-at:CLASS`` is the number of
    updates that the optimizer's moments have counted: 0 without moments, 1 for moments without a count.
    """
    for optimizer in stream.optimizers:
        if not any("initial_lr" in group for group in optimizer.param_groups) or not _keeps_moments(optimizer):
            continue  # every scheduler of torch writes ``initial_lr`` into the group
        found = [one for one in schedulers_of(optimizer) if not isinstance(one, ReduceLROnPlateau)]
        counts = [one.last_epoch for one in found if isinstance(getattr(one, "last_epoch", None), int)]
        if counts:
            yield f"schedule-at:{type(found[0]).__name__}", float(max(counts))
            yield f"moments-at:{type(optimizer).__name__}", _updates(optimizer)


def _keeps_moments(optimizer: torch.optim.Optimizer) -> bool:
    """Whether this is one of torch's own optimizers and keeps moments after its first update."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return False
    return not isinstance(optimizer, torch.optim.SGD) or any(one.get("momentum") for one in optimizer.param_groups)


def _updates(optimizer: torch.optim.Optimizer) -> float:
    states = [state for state in optimizer.state.values() if isinstance(state, Mapping) and state]
    return max((float(state.get("step", 1.0)) for state in states), default=0.0)
