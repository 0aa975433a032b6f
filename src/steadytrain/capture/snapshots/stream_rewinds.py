"""One recording for each of the first two optimizers that take turns, so that an incident of either can be replayed.

Each recording counts the steps of its own optimizer, and holds the state and the updates of the others (``rewind``).
They share the budget. The recording of a second optimizer begins with its second step: none of its calls is known
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.settings import Settings
from steadytrain.capture.snapshots.rewind import Rewind
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.incident import Samples

Make = Callable[[int], Rewind]


class StreamRewinds(StepObserver):
    """Passes every event to the recordings. Which optimizer is the second shows at its first gate.

    Args:
        size_bytes_max: the budget of all recordings together.
        make: makes a recording with a budget.
    """

    def __init__(self, size_bytes_max: int, make: Make) -> None:
        self.first = make(size_bytes_max)
        self.second: Rewind | None = None
        self._make = make
        self._size_bytes_max = size_bytes_max
        self._streams: list[Stream] = []

    def _each(self) -> Iterator[Rewind]:
        yield self.first
        if self.second is not None:
            yield self.second

    def _of(self, stream: Stream) -> Rewind:
        is_second = len(self._streams) > 1 and stream is self._streams[1]
        return self.second if is_second and self.second is not None else self.first

    def _meet(self, stream: Stream) -> None:
        if any(stream is one for one in self._streams):
            return
        self._streams.append(stream)
        if len(self._streams) != 2 or stream.own_steps or self.first.is_off:
            return
        half = self._size_bytes_max // 2
        self.first.bound(half)
        self.second = self._make(half)
        self.second.take_over(stream, self.first, self._streams[:1])

    # -- a step forms ----------------------------------------------------------------------------------------------

    def drawn(self, samples: Samples) -> None:
        for one in self._each():
            one.drawn(samples)

    def fetched(self, dataset: int, batch: Any) -> Any:
        for one in self._each():
            one.fetched(dataset, batch)
        return MISSING

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        for one in self._each():
            one.scalers = self.scalers
            one.call_begins(module, call, args, kwargs)
        return None

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        for one in self._each():
            one.forward_ended(call, random)

    def calls_left_out(self) -> None:
        for one in self._each():
            one.calls_left_out()

    def calls_forgotten(self) -> None:
        for one in self._each():
            one.calls_forgotten()

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._meet(stream)
        for one in self._each():
            one.gate(stream, seen, measured)

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._of(stream).let_go(stream, seen, measured)

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        for one in self._each():
            one.step_ended(stream, folder)

    def rest_begins(self, stream: Stream) -> None:
        for one in self._each():
            one.rest_begins(stream)

    def passed_over(self, dataset: int, batch: Any, *, keep: bool) -> None:
        for one in self._each():
            one.passed_over(dataset, batch, keep=keep)

    def rest_ends(self, stream: Stream, *, within: bool) -> None:
        for one in self._each():
            one.rest_ends(stream, within=within)

    def rolled_back(self, stream: Stream) -> None:
        for one in self._each():
            one.rolled_back(stream)

    def stream_done(self, stream: Stream) -> None:
        for one in self._each():
            one.stream_done(stream)

    def optimizer_replaced(self, stream: Stream, old: torch.optim.Optimizer | None) -> None:
        for one in self._each():
            one.optimizer_replaced(stream, old)

    # -- what becomes of it ----------------------------------------------------------------------------------------

    def incident(self, stream: Stream, folder: Path, bundle: Path) -> None:
        self._of(stream).incident(stream, folder, bundle)

    def free_disk(self) -> bool:
        made_room = [one.free_disk() for one in self._each()]  # each of them, not up to the first
        return any(made_room)

    def why_not(self, stream: Stream) -> str | None:
        return self._of(stream).why_not(stream)

    def hold(self, stream: Stream, folder: Path, *, onset: int) -> Callable[[Path], None]:
        return self._of(stream).hold(stream, folder, onset=onset)

    def close(self, *, finished: bool, noted: bool) -> None:
        for one in self._each():
            one.close(finished=finished, noted=noted)

    def forget(self) -> None:
        for one in self._each():
            one.forget()

    @property
    def memory_bytes(self) -> int:
        return sum(one.memory_bytes for one in self._each())


def recorder_of(settings: Settings, note: Callable[[str], None], *, recording: bool) -> StepObserver:
    """The observer for a run with these settings; it does nothing if no recording is requested."""
    if settings.rewind_bytes_max == 0 or not recording:
        return StepObserver()
    return StreamRewinds(
        settings.rewind_bytes_max, lambda size_bytes_max: Rewind(size_bytes_max, note=note, keep=settings.keep_rewind)
    )
