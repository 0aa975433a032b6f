"""Snapshots of several ranks at the same steps, so that all can be replayed together from there.

Each rank decides alone how often it takes one, by what that costs it. From its second one on it does so only at
multiples of a power of two, so the rarer ones of a slow rank are also there on the others.
"""

from __future__ import annotations

from steadytrain.capture.step import ranks
from steadytrain.capture.step.optimizer_streams import Stream

PLAIN = "DistributedDataParallel"
SHARDED = (
    "no tape is kept, because each rank holds a part of the state only ({}): ranks are replayed if each holds the "
    "whole model"
)


def is_common(stream: Stream, every: int) -> bool:
    """Whether all ranks may take a snapshot after this step. ``every``: how often this one takes one."""
    if ranks.world_size() < 2 or stream.own_steps <= 1:
        return True
    return stream.step % (1 << (every - 1).bit_length()) == 0


def why_never(stream: Stream) -> str | None:
    """Why the steps of these ranks can never be replayed together; None if they can."""
    joint = stream.joint
    if joint is None:
        return None
    if joint.sharded:
        return SHARDED.format("sharded parameters")
    other = next((type(one).__name__ for one in joint.wrappers if type(one).__name__ != PLAIN), None)
    if other is not None:
        return SHARDED.format(other)
    parts = (type(one).__name__ for one in stream.optimizers if type(one).__name__ == "ZeroRedundancyOptimizer")
    part = next(parts, None)
    return None if part is None else SHARDED.format(part)
