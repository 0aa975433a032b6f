"""Whether gradients of one update are still there when the next one is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from steadytrain.capture.step.optimizer_streams import Stream


@dataclass(eq=False)
class _Since:
    """What was seen of a stream since its last update. ``kept``: the gradients that every backward so far found."""

    parameters: Sequence[Tensor]
    backwards: int = 0
    kept: dict[int, Tensor] | None = None


class CarriedGradients:
    """Compares the gradients at the start of each backward with those that the update before applied.

    Another optimizer's backward may come between, so one backward that finds them cleared is enough.
    """

    def __init__(self) -> None:
        self._streams: dict[int, _Since] = {}

    def backward_begins(self) -> None:
        for since in self._streams.values():
            found = {id(p): p.grad for p in since.parameters if p.grad is not None and bool(p.grad.any())}
            since.kept = found if since.backwards == 0 or since.kept else {}
            since.backwards += 1

    def gate(self, stream: Stream) -> bool | None:
        """Whether the gradients that ``stream`` is about to apply still hold those of its update before.

        None at its first update, and if no backward came between. A gradient that the script has replaced holds none.
        """
        since = self._streams.get(id(stream))
        self._streams[id(stream)] = _Since(list(stream.parameters))
        if since is None or since.backwards == 0:
            return None
        now = {id(parameter): parameter.grad for parameter in since.parameters}
        return any(now[number] is gradient for number, gradient in (since.kept or {}).items())
