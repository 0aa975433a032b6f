"""The contract of observers, which receive the events of every step in order, on the training thread.

::

    fetched ── call_begins ── forward_ended ── (more calls) ── gate ── (update) ── step_ended ── updated

An observer that records changes nothing. An observer that replays (in a process launched for that) supplies other
batches and arguments, and loads recorded state into the process. The watcher guards every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.incident import Samples


class StepObserver:
    """The base class: every method does nothing."""

    replays = False
    """Whether this process runs recorded steps again. Then it records nothing and freezes no incident."""

    from_start = False
    """Whether the script's own steps count from its start: no recorded state will overwrite what they computed."""

    gates_max: int | None = None
    """In a launched process: bound on the gates of all optimizers. After it the process ends."""

    scalers: Mapping[int, Any] = MappingProxyType({})
    """The gradient scalers that the script has used, by id. The watcher sets this to its own mapping."""

    def fetch_begins(self, dataset: int) -> Any:
        """The script asks a data loader for its next batch. Returns the batch to use instead, or ``MISSING``."""
        return MISSING

    def drawn(self, samples: Samples) -> None:
        """The samples of the next ``fetched`` batch, with gradients enabled."""

    def fetched(self, dataset: int, batch: Any) -> Any:
        """A loader of ``dataset`` (numbered by first use) returned ``batch``. Returns another batch, or ``MISSING``."""
        return MISSING

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The script calls a root module with gradients enabled. Returns other arguments, or None."""
        return None

    def aside_begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """The script calls a root module without gradients."""

    def aside_ended(self, module: nn.Module, output: Any) -> None:
        """That call has returned ``output``."""

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        """A root module's call has ended; ``call`` is None if gradients were off. ``random`` is the current state."""

    def calls_left_out(self) -> None:
        """The step has too many calls of root modules: the rest of them are not recorded."""

    def calls_forgotten(self) -> None:
        """The calls so far belong to no step that is recorded (an update by hand whose pattern is not known yet)."""

    def gradients_zeroed(self) -> None:
        """The script is about to clear gradients."""

    def backward_begins(self) -> None:
        """An outermost backward is about to run."""

    def backward_ends(self) -> None:
        """That backward has run, or failed."""

    def loss_seen(self, root: Tensor) -> None:
        """The root of that backward is ``root``, a tensor of one element."""

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        """The gate has measured loss and gradients. The update follows, unless it is refused or skipped."""

    def skips(self, measured: Measurement) -> bool:
        """Whether the update of the step at the gate is to be skipped, because it was when it was recorded."""
        return False

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        """The script makes no update with the non-finite values of ``seen``. No gate follows."""

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        """A step of ``stream`` is on record. ``folder`` is the run folder, None if nothing is recorded."""

    def updated(self, stream: Stream) -> None:
        """All optimizers of ``stream`` have stepped."""

    def rest_begins(self, stream: Stream) -> None:
        """The next steps of ``stream`` are not recorded (``resting``)."""

    def passed_over(self, dataset: int, batch: Any, *, keep: bool) -> None:
        """A loader of ``dataset`` returned ``batch`` while the run rests. ``keep``: the rest is about to end."""

    def rest_ends(self, stream: Stream, *, within: bool) -> None:
        """The steps up to ``stream.step`` have passed. ``within``: the step in progress has already begun."""

    def rolled_back(self, stream: Stream) -> None:
        """After ``stream.step`` the training has returned to an earlier state: what follows does not follow from it."""

    def stream_done(self, stream: Stream) -> None:
        """The script has dropped the optimizers of ``stream``, so no step of it follows."""

    def optimizer_replaced(self, stream: Stream, old: torch.optim.Optimizer | None) -> None:
        """Another optimizer has taken the place of ``old`` in ``stream``, and is at its first gate."""

    def incident(self, stream: Stream, folder: Path, bundle: Path) -> None:
        """The step at the gate was frozen as ``bundle``, in the run folder ``folder``."""

    def free_disk(self) -> bool:
        """The disk is full: delete what was recorded of the steps. Returns whether that made room."""
        return False

    def why_not(self, stream: Stream) -> str | None:
        """Why the steps of ``stream`` cannot be replayed; None if they can."""
        return "no tape is kept (--rewind-mb 0)"

    def hold(self, stream: Stream, folder: Path, *, onset: int) -> Callable[[Path], None]:
        """Returns a function that copies the recording of ``stream``, from before ``onset`` to its last step, into a
        bundle. Any thread may call it."""
        return lambda bundle: None

    def script_ended(self) -> None:
        """There will be no more steps; the detectors are about to look for the last time."""

    def close(self, *, finished: bool, noted: bool) -> None:
        """The run is over. ``finished``: it reached its end, or steadytrain stopped it. ``noted``: it has symptoms that
        are in no bundle."""

    def forget(self) -> None:
        """Called in a forked child, which owns none of this."""

    @property
    def memory_bytes(self) -> int:
        return 0


class CompositeObserver(StepObserver):
    """Two observers of the same steps: the return values of ``first`` count, those of ``guest`` are ignored."""

    def __init__(self, first: StepObserver, guest: StepObserver) -> None:
        self._first = first
        self._guest = guest
        self.replays = first.replays or guest.replays
        self.from_start = first.from_start
        self.scalers = guest.scalers = first.scalers

    def fetch_begins(self, dataset: int) -> Any:
        self._guest.fetch_begins(dataset)
        return self._first.fetch_begins(dataset)

    def drawn(self, samples: Samples) -> None:
        self._guest.drawn(samples)
        self._first.drawn(samples)

    def fetched(self, dataset: int, batch: Any) -> Any:
        self._guest.fetched(dataset, batch)
        return self._first.fetched(dataset, batch)

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        self._guest.call_begins(module, call, args, kwargs)
        return self._first.call_begins(module, call, args, kwargs)

    def aside_begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._first.aside_begins(module, args, kwargs)
        self._guest.aside_begins(module, args, kwargs)

    def aside_ended(self, module: nn.Module, output: Any) -> None:
        self._first.aside_ended(module, output)
        self._guest.aside_ended(module, output)

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        self._first.forward_ended(call, random)
        self._guest.forward_ended(call, random)

    def calls_left_out(self) -> None:
        self._first.calls_left_out()
        self._guest.calls_left_out()

    def calls_forgotten(self) -> None:
        self._first.calls_forgotten()
        self._guest.calls_forgotten()

    def gradients_zeroed(self) -> None:
        self._first.gradients_zeroed()
        self._guest.gradients_zeroed()

    def backward_begins(self) -> None:
        self._first.backward_begins()
        self._guest.backward_begins()

    def backward_ends(self) -> None:
        self._first.backward_ends()
        self._guest.backward_ends()

    def loss_seen(self, root: Tensor) -> None:
        self._first.loss_seen(root)
        self._guest.loss_seen(root)

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._first.gate(stream, seen, measured)
        self._guest.gate(stream, seen, measured)

    def skips(self, measured: Measurement) -> bool:
        return self._first.skips(measured)

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._first.let_go(stream, seen, measured)
        self._guest.let_go(stream, seen, measured)

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        self._first.step_ended(stream, folder)
        self._guest.step_ended(stream, folder)

    def updated(self, stream: Stream) -> None:
        self._first.updated(stream)
        self._guest.updated(stream)

    def rest_begins(self, stream: Stream) -> None:
        self._first.rest_begins(stream)
        self._guest.rest_begins(stream)

    def passed_over(self, dataset: int, batch: Any, *, keep: bool) -> None:
        self._first.passed_over(dataset, batch, keep=keep)
        self._guest.passed_over(dataset, batch, keep=keep)

    def rest_ends(self, stream: Stream, *, within: bool) -> None:
        self._first.rest_ends(stream, within=within)
        self._guest.rest_ends(stream, within=within)

    def rolled_back(self, stream: Stream) -> None:
        self._first.rolled_back(stream)
        self._guest.rolled_back(stream)

    def stream_done(self, stream: Stream) -> None:
        self._first.stream_done(stream)
        self._guest.stream_done(stream)

    def optimizer_replaced(self, stream: Stream, old: torch.optim.Optimizer | None) -> None:
        self._first.optimizer_replaced(stream, old)
        self._guest.optimizer_replaced(stream, old)

    def incident(self, stream: Stream, folder: Path, bundle: Path) -> None:
        self._first.incident(stream, folder, bundle)
        self._guest.incident(stream, folder, bundle)

    def free_disk(self) -> bool:
        return self._first.free_disk()

    def why_not(self, stream: Stream) -> str | None:
        return self._first.why_not(stream)

    def hold(self, stream: Stream, folder: Path, *, onset: int) -> Callable[[Path], None]:
        return self._first.hold(stream, folder, onset=onset)

    def script_ended(self) -> None:
        self._first.script_ended()
        self._guest.script_ended()

    def close(self, *, finished: bool, noted: bool) -> None:
        self._first.close(finished=finished, noted=noted)
        self._guest.close(finished=finished, noted=noted)

    def forget(self) -> None:
        self._first.forget()
        self._guest.forget()

    @property
    def memory_bytes(self) -> int:
        return self._first.memory_bytes + self._guest.memory_bytes
