"""Reads the step counts of scheduler and optimizer before a stream's first updates: they show what a resume loaded."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from steadytrain.capture.snapshots.loaded_states import moves
from steadytrain.capture.snapshots.resumed_states import Beside, ResumedStates, same_settings
from steadytrain.capture.step.optimizer_streams import Stream

RATE_UPDATES = 4
"""First updates whose rate is compared with the loaded one: a schedule moves it when it is stepped."""


def counted_rows(stream: Stream, schedulers: Sequence[weakref.ref[Any]], backwards: int) -> Iterator[tuple[str, float]]:
    """Rows before the first update of ``stream``, for optimizers that have one of its ``schedulers`` and keep moments.

    ``schedule-at:CLASS`` is the step count of the most advanced scheduler. ``moments-at:CLASS`` is the number of
    updates that the optimizer's moments have counted: 0 without moments, 1 for moments without a count. None, if the
    scheduler has counted less than the ``backwards`` of the update: it is stepped for each of them.
    """
    for optimizer in stream.optimizers:
        if not _keeps_moments(optimizer):
            continue
        mine = [one for ref in schedulers if (one := ref()) is not None and moves(one.optimizer, optimizer)]
        found = [one for one in mine if not isinstance(one, ReduceLROnPlateau)]
        counts = [one.last_epoch for one in found if isinstance(getattr(one, "last_epoch", None), int)]
        if counts and not 0 < max(counts) < backwards:
            yield f"schedule-at:{type(found[0]).__name__}", float(max(counts))
            yield f"moments-at:{type(optimizer).__name__}", updates_of(optimizer)


def resumed_rows(
    stream: Stream, resumed: ResumedStates, schedulers: Sequence[weakref.ref[Any]]
) -> Iterator[tuple[str, float]]:
    """Rows before the first ``RATE_UPDATES`` updates of ``stream``.

    ``moments-left:CLASS`` is the number of parameters whose moments the checkpoint of the weights holds, if the
    optimizer was given none. ``moments-unsaved:CLASS UNIT`` is how far the training had come whose checkpoint holds no
    moments, in its own word. ``schedule-left:CLASS`` is the step count of a schedule in that checkpoint, if one with
    the same settings begins at 0. ``moments-given:CLASS`` is the number of updates that loaded moments have counted.
    ``rate-over-loaded:CLASS`` is the learning rate as a multiple of the one that was loaded with the optimizer's state.
    """
    first = stream.own_steps == 0
    for optimizer in stream.optimizers:
        name = type(optimizer).__name__
        held = [one for group in optimizer.param_groups for one in group["params"]]
        beside = resumed.take(held) if first else Beside()
        given = resumed.rate_of(optimizer)
        without = not given and _keeps_moments(optimizer) and not updates_of(optimizer)
        if beside.parameters == len(held) and without:
            yield f"moments-left:{name}", float(beside.parameters)
        if beside.position and not beside.parameters and without:
            yield f"moments-unsaved:{name} {beside.unit}", float(beside.position)
        rate = optimizer.param_groups[0].get("lr")
        if first and given and updates_of(optimizer):
            yield f"moments-given:{name}", updates_of(optimizer)
        if given and rate is not None:
            yield f"rate-over-loaded:{name}", float(rate) / given
        known = beside.settings and (given or beside.parameters == len(held))
        for one in (each for ref in schedulers if (each := ref()) is not None) if known else ():
            if getattr(one, "last_epoch", None) == 0 and same_settings(one, beside.settings or {}):
                yield f"schedule-left:{type(one).__name__}", float(beside.schedule_at)


def _keeps_moments(optimizer: torch.optim.Optimizer) -> bool:
    """Whether this is one of torch's own optimizers and keeps moments after its first update."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return False
    return not isinstance(optimizer, torch.optim.SGD) or any(one.get("momentum") for one in optimizer.param_groups)


def updates_of(optimizer: torch.optim.Optimizer) -> float:
    states = [state for state in optimizer.state.values() if isinstance(state, Mapping) and state]
    return max((float(state.get("step", 1.0)) for state in states), default=0.0)
