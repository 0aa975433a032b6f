"""Which optimizers step while a run rests, and how many steps of each were not recorded (``resting``).

Optimizers that take turns rest together: a rest begins and ends after the step of the one that ends their turn.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.model import FloatArray

TURN_STEPS = 64
"""Last steps of all optimizers, from which it shows who takes turns."""

LAST_SHARE_MIN = 1 / 16
"""The optimizer that ends a turn makes at least this share of the steps: a rest would never begin after a rarer one."""

CHECKED_ELEMENTS_MAX = 1 << 14
"""Size of the gradient that is read: its sum costs some microseconds."""

FAR_SPREADS = 4.0
"""A loss is far above the recorded ones if it lies above the highest by this many times the way from their median to
the highest."""

KNOWN_MIN, KNOWN_MAX = 32, 512
"""Recorded losses without which no loss is far, and those that are compared."""


class Turns:
    """Finds the optimizer that ends a turn: of those that step often enough, the one that stepped last for the first
    time."""

    def __init__(self) -> None:
        self._stepped: deque[str] = deque(maxlen=TURN_STEPS)
        self._counts: Counter[str] = Counter()

    def stepped(self, stream: Stream) -> None:
        """``stream`` has made a step."""
        if len(self._stepped) == TURN_STEPS:
            self._counts[self._stepped[0]] -= 1
        self._stepped.append(stream.name)
        self._counts[stream.name] += 1

    def last_of(self, streams: Sequence[Stream]) -> Stream | None:
        """The stream whose step ends a turn of ``streams``, None if that is not known yet."""
        if len(streams) == 1:
            return streams[0]
        if len(self._stepped) < TURN_STEPS:
            return None
        least = LAST_SHARE_MIN * TURN_STEPS
        return next((one for one in reversed(streams) if one.joined and self._counts[one.name] >= least), None)

    def steps_in_a_turn(self, last: Stream) -> float:
        """The number of optimizer steps from one step of ``last`` to the next one."""
        return max(1.0, len(self._stepped) / max(1, self._counts[last.name]))


class RestingStreams:
    """The streams that step in a rest: those of the optimizers that exist when it begins.

    Args:
        last: the stream whose step ends a turn.
        reads: whether a small gradient of each stream is read before its update.
    """

    def __init__(self, streams: Sequence[Stream], last: Stream, *, reads: bool) -> None:
        self.last = last
        self._last_optimizer = _id_of_last(last)
        self._first = {one.name: one.step + 1 for one in streams}
        self._streams = [one for one in streams if one.joined and one is not last] + [last]
        self._of = {id(optimizer): one for one in self._streams for optimizer in one.optimizers}
        self._counted = {_id_of_last(one): one for one in self._streams}
        self.checked: dict[int, Tensor] = {}
        """A parameter for each optimizer, by its id: its gradient is read before the update."""

        if reads:
            found = ((optimizer, _small_gradient(optimizer)) for one in streams for optimizer in one.optimizers)
            self.checked = {id(optimizer): parameter for optimizer, parameter in found if parameter is not None}

    def __iter__(self) -> Iterator[Stream]:
        """The streams, the one that ends a turn last."""
        return iter(self._streams)

    def knows(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether ``optimizer`` stepped before the rest."""
        return id(optimizer) in self._of

    def ends_turn(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the step of ``optimizer`` is the last of a turn."""
        return id(optimizer) == self._last_optimizer

    def count(self, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer`` has stepped: its stream is one step further if it is the last that steps in it."""
        stream = self._counted.get(id(optimizer))
        if stream is not None:
            stream.step += 1

    def passed(self, stream: Stream) -> int:
        """The steps of ``stream`` since the rest began."""
        return stream.step + 1 - self._first[stream.name]

    def unrecorded(self) -> dict[str, tuple[int, int]]:
        """For each stream its first step that was not recorded, and the step in progress."""
        return {one.name: (self._first[one.name], one.step + 1) for one in self._streams}


class UsualLoss:
    """The bound above which a loss is so far from the recorded ones that the rest ends, and the step is recorded.

    Each such end doubles the distance, so that losses with a heavy tail end few rests.
    """

    def __init__(self) -> None:
        self._bound = math.inf
        self._distance = FAR_SPREADS

    def learn(self, losses: FloatArray) -> None:
        """``losses`` are finite and those of recorded steps, the newest last."""
        known = losses[-KNOWN_MAX:]
        self._bound = math.inf
        if len(known) >= KNOWN_MIN:
            top = float(known.max())
            self._bound = top + self._distance * (top - float(np.median(known)))

    def allows(self, loss: float) -> bool:
        """Whether ``loss`` is finite, and not above the bound. If not, the next bound lies twice as far."""
        if math.isfinite(loss) and loss <= self._bound:
            return True
        self._distance *= 2
        return False


def _id_of_last(stream: Stream) -> int:
    optimizers = stream.optimizers
    return id(optimizers[-1]) if optimizers else 0


def _small_gradient(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """The first parameter whose gradient can be read in every step: NaN in a backward reaches the first layers.

    One that has a gradient now comes first; the script may have discarded those of an optimizer already.
    """
    readable = [
        one
        for group in optimizer.param_groups
        for one in group["params"]
        if one.requires_grad
        and one.layout == torch.strided
        and one.device.type == "cpu"
        and one.is_floating_point()
        and 0 < one.numel() <= CHECKED_ELEMENTS_MAX
    ]
    return next((one for one in readable if _is_dense(one.grad)), readable[0] if readable else None)


def _is_dense(gradient: Tensor | None) -> bool:
    return type(gradient) is Tensor and gradient.layout == torch.strided
