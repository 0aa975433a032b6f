"""What is told of every step while it forms, in order, on the training thread: the contract of the recorder.

::

    fetched ── call_begins ── forward_ended ── (more calls) ── gate ── (update) ── step_ended ── updated

A follower that records lets everything be. One that replays (in a process that was launched for it) gives other batches
and arguments, and puts recorded state into the process. The watcher guards every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from steadytrain.capture.hooks.patches import MISSING
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.incident import Samples


class StepObserver:
    """Does nothing by itself."""

    replays = False
    """Whether this is a process that does recorded steps again: then nothing is recorded and no incident is frozen."""

    scalers: Mapping[int, Any] = MappingProxyType({})
    """The gradient scalers that the script has used, by id; the watcher puts its own here."""

    def fetch_begins(self, dataset: int) -> Any:
        """A data loader is asked for its next batch; returns the one to give instead, or ``MISSING``."""
        return MISSING

    def drawn(self, samples: Samples) -> None:
        """Of what the batch is made that is told of next, with gradients on."""

    def fetched(self, dataset: int, batch: Any) -> Any:
        """A data loader of ``dataset`` (in order of first use) gave ``batch``; returns another one, or ``MISSING``."""
        return MISSING

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """A root module is called with gradients on; may replace the arguments."""
        return None

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        """A call of a root module is over; ``call`` is None of one without gradients. ``random`` is the state now."""

    def calls_left_out(self) -> None:
        """From here on this step's calls of root modules are not recorded: there are too many."""

    def backward_begins(self) -> None:
        """An outermost backward is about to run."""

    def loss_seen(self, root: Tensor) -> None:
        """That backward has ``root``, a single number, at its root."""

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        """The look at loss and gradients was made; the update follows, unless it is refused or skipped."""

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        """The script makes no update with what was ``seen``, which is not finite: no gate follows."""

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        """A step of ``stream`` is on record; ``folder`` is the run's, None where nothing is recorded."""

    def updated(self, stream: Stream) -> None:
        """All optimizers of ``stream`` have stepped."""

    def stream_done(self, stream: Stream) -> None:
        """The script has let go of the optimizers of ``stream``: it makes no step any more."""

    def incident(self, stream: Stream, folder: Path, bundle: Path) -> None:
        """The step at the gate was frozen as ``bundle``, in the run folder ``folder``."""

    def why_not(self, stream: Stream) -> str | None:
        """Why the steps of ``stream`` cannot be done again; None where they can."""
        return "no tape is kept (--rewind-mb 0)"

    def hold(self, stream: Stream, folder: Path, *, onset: int) -> Callable[[Path], None]:
        """What puts all of ``stream`` from before ``onset`` to its last step into a bundle, in whatever thread."""
        return lambda bundle: None

    def close(self, *, finished: bool, noted: bool) -> None:
        """The run is over: whether it came to its end (or was stopped by us), and with symptoms that no bundle has."""

    def forget(self) -> None:
        """In a forked child: nothing of this is its own."""

    @property
    def memory_bytes(self) -> int:
        return 0


class CompositeObserver(StepObserver):
    """Two followers of the same steps: ``first``, whose answers count, and a ``guest`` that only looks."""

    def __init__(self, first: StepObserver, guest: StepObserver) -> None:
        self._first = first
        self._guest = guest
        self.replays = first.replays or guest.replays
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

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        self._first.forward_ended(call, random)
        self._guest.forward_ended(call, random)

    def calls_left_out(self) -> None:
        self._first.calls_left_out()
        self._guest.calls_left_out()

    def backward_begins(self) -> None:
        self._first.backward_begins()
        self._guest.backward_begins()

    def loss_seen(self, root: Tensor) -> None:
        self._first.loss_seen(root)
        self._guest.loss_seen(root)

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._first.gate(stream, seen, measured)
        self._guest.gate(stream, seen, measured)

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self._first.let_go(stream, seen, measured)
        self._guest.let_go(stream, seen, measured)

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        self._first.step_ended(stream, folder)
        self._guest.step_ended(stream, folder)

    def updated(self, stream: Stream) -> None:
        self._first.updated(stream)
        self._guest.updated(stream)

    def stream_done(self, stream: Stream) -> None:
        self._first.stream_done(stream)
        self._guest.stream_done(stream)

    def incident(self, stream: Stream, folder: Path, bundle: Path) -> None:
        self._first.incident(stream, folder, bundle)
        self._guest.incident(stream, folder, bundle)

    def why_not(self, stream: Stream) -> str | None:
        return self._first.why_not(stream)

    def hold(self, stream: Stream, folder: Path, *, onset: int) -> Callable[[Path], None]:
        return self._first.hold(stream, folder, onset=onset)

    def close(self, *, finished: bool, noted: bool) -> None:
        self._first.close(finished=finished, noted=noted)
        self._guest.close(finished=finished, noted=noted)

    def forget(self) -> None:
        self._first.forget()
        self._guest.forget()

    @property
    def memory_bytes(self) -> int:
        return self._first.memory_bytes + self._guest.memory_bytes
