"""Whether only the training has written to the parameters of a stream since its last recorded update.

Some of the parameters are followed, by their version counters. What a script writes between two steps (it clamps or
normalizes weights) is known from the step before, and what an update writes in a step that is not recorded, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from steadytrain.core.torch_private import VERSION

if TYPE_CHECKING:
    from steadytrain.capture.step.optimizer_streams import Stream

FOLLOWED_MAX = 8

_Versions = tuple[int, ...]


class ParameterWrites:
    """Serves one stream."""

    def __init__(self) -> None:
        self._step = 0
        self._signature: tuple[int, ...] = ()
        self._after: _Versions = ()
        self._in_a_step: _Versions | None = None
        self._between: _Versions | None = None

    def gate(self, stream: Stream) -> None:
        """The update of a step is about to run."""
        if stream.signature == self._signature and stream.step == self._step:
            self._between = _less(_versions(stream.parameters), self._after)

    def updated(self, stream: Stream) -> None:
        """The update of ``stream.step`` has run."""
        now = _versions(stream.parameters)
        if stream.signature != self._signature:
            self._in_a_step = self._between = None
        elif stream.step == self._step + 1:
            self._in_a_step = _less(now, self._after)
        self._step, self._signature, self._after = stream.step, stream.signature, now

    def restored(self, stream: Stream) -> None:
        """Steadytrain itself has written to the parameters, between two steps."""
        self._step, self._signature, self._after = stream.step, stream.signature, _versions(stream.parameters)

    def are_its_own(self, stream: Stream) -> bool:
        """Whether nobody else has written to the parameters, as far as it is known."""
        passed = stream.step - self._step
        if not self._after or stream.signature != self._signature or (passed and self._in_a_step is None):
            return False
        more = _less(_versions(stream.parameters), self._after)
        if passed and self._in_a_step is not None:
            more = _less(more, [passed * one for one in self._in_a_step])
        return not any(more) or more == self._between


def _versions(parameters: Sequence[Tensor]) -> _Versions:
    stride = max(1, -(-len(parameters) // FOLLOWED_MAX))
    try:
        return tuple(VERSION.of(one) for one in parameters[::stride])
    except RuntimeError:  # an inference tensor has none
        return ()


def _less(one: Sequence[int], other: Sequence[int]) -> _Versions:
    return tuple(here - there for here, there in zip(one, other, strict=False))
