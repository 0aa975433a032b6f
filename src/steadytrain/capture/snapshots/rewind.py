"""Manages the tape and the snapshots of one stream, which make its steps replayable.

The snapshots hold the state of all optimizers that take turns with it, and the tape their updates in between
(``stream_rewinds`` has one such recording for each stream). They are written into the run folder during the run, and
linked into the bundle of an incident. At the end a run deletes them if every symptom is in a bundle. A failure of our
own or of the disk ends the recording with one note, and training continues.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.snapshots.common_steps import is_common, why_never
from steadytrain.capture.snapshots.snapshots import Snapshots
from steadytrain.capture.snapshots.tape import Tape
from steadytrain.capture.snapshots.tapes_of_ranks import needed_by_others
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState, tensors_in
from steadytrain.capture.step.observers import StepObserver
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.core.incident import Samples
from steadytrain.core.own_errors import own
from steadytrain.core.torch_private import IS_FUNCTORCH
from steadytrain.storage.bundle import seal, write_json
from steadytrain.storage.tape_files import (
    LEAD_STEPS,
    REPLAY_FILE,
    REPLAY_FOLDER,
    Recording,
    find_recording,
    recording_folder,
    remove_recording,
)

TAPE_SHARE = 0.25
"""The tape's share of the disk budget; snapshots get the rest."""

HELD_SHARE = 0.25
"""The share of the budget for older snapshots in one symptom's bundle; they stay while the run continues."""

MAIN = "main"
NOT_WHOLE = "the last steps could not be written"
UNRECORDED = "the last step was not recorded, because the run rested (--every-step records all)"


class Rewind(StepObserver):
    """The observer that records tape and snapshots. Only the training thread uses it."""

    def __init__(
        self,
        size_bytes_max: int,
        *,
        note: Callable[[str], None],
        keep: bool,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.tape = Tape(int(size_bytes_max * TAPE_SHARE))
        self.snapshots = snapshots or Snapshots(int(size_bytes_max * (1 - TAPE_SHARE)))
        self._size_bytes_max = size_bytes_max
        self._note = note
        self._keep = keep
        self._folder: Path | None = None
        self._stream: Stream | None = None
        self._others: list[tuple[Stream, int]] = []
        self._joins_late = False
        self._steps_since_call = 0
        self._anew = self._unrecorded = False
        self._renewed = 0
        self._off: str | None = None
        self._is_over = False

    @property
    def is_off(self) -> bool:
        """Whether it records no more."""
        return self._off is not None

    def bound(self, size_bytes_max: int) -> None:
        """Keep to a smaller budget from now on."""
        self._size_bytes_max = size_bytes_max
        self.tape.bound(int(size_bytes_max * TAPE_SHARE))
        self.snapshots.size_bytes_max = int(size_bytes_max * (1 - TAPE_SHARE))

    def take_over(self, stream: Stream, beside: Rewind, others: Sequence[Stream]) -> None:
        """Record ``stream``, which makes its first step, from the next one on, ``beside`` the recording of another."""
        self._stream, self._joins_late, self._others = stream, True, [(one, 1) for one in others]
        self.scalers = beside.scalers
        self.tape.begin_like(beside.tape)

    # -- a step forms ----------------------------------------------------------------------------------------------

    def drawn(self, samples: Samples) -> None:
        self.tape.drawn(samples)

    def fetched(self, dataset: int, batch: Any) -> Any:
        if self._off is None:
            self.tape.fetched(dataset, batch)
        return MISSING

    def call_begins(self, module: nn.Module, call: MicroBatch, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if self._off is None:
            transformed = any(IS_FUNCTORCH(one) for one in tensors_in((args, kwargs)))
            if not transformed:  # else no state can be copied now
                if self._stream is not None and self._steps_since_call:
                    self._snapshot(self._stream)
                self._steps_since_call = 0
            self.tape.call_begins(call)
            if transformed:
                self.tape.called_in_transform()
        return None

    def forward_ended(self, call: MicroBatch | None, random: RandomState) -> None:
        if self._off is None and call is not None:
            self.tape.call_ended(call, random)

    def calls_left_out(self) -> None:
        if self._off is None:
            self.tape.calls_left_out()

    def calls_forgotten(self) -> None:
        if self._off is None:
            self.tape.forget_calls()

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        if self._off is not None:
            return
        if (why := why_never(stream)) is not None:
            self._stop(why)
            return
        if self._stream is None:
            self._stream = stream
        if stream is not self._stream:
            if all(stream is not one for one, _ in self._others):
                self._others.append((stream, self._stream.own_steps + 1))
            self.snapshots.gate(None)
            self.tape.other_gate(stream, measured)
            return
        self.snapshots.gate(float(measured.record.scalars["step_s"] or 0.0))
        self.tape.gate(stream, measured, evaluations=seen.evaluations)
        if self.snapshots.note is not None:
            self._note(self.snapshots.note)

    def let_go(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        if self._off is None and stream is self._stream and self._folder is not None:
            self.tape.let_go(stream, measured, evaluations=seen.evaluations, folder=self._folder)

    def step_ended(self, stream: Stream, folder: Path | None) -> None:
        if self._is_over:
            self.tape.forget_step()
        if self._off is not None or stream is not self._stream:
            return
        if folder is None:
            self._stop("the run folder takes nothing more, so the steps cannot be replayed")
            return
        self._folder = folder = recording_folder(folder, stream.name)
        self._steps_since_call += 1
        self._unrecorded = False
        if self._joins_late:
            self._joins_late = False
            self.tape.forget_step()  # the calls of its first step were not seen
            return
        self.tape.step_ended(folder)
        if self.tape.failure is not None:
            self._stop(f"no tape of the steps is kept any more: {self.tape.failure}")
            remove_recording(folder)  # what is left of it is of no use, and the disk may be full
        elif self._steps_since_call > 1:
            self._snapshot(stream)  # no module call marks the beginning of a step

    def rest_begins(self, stream: Stream) -> None:
        if stream is self._stream:
            self.snapshots.give_up_live()

    def passed_over(self, dataset: int, batch: Any, *, keep: bool) -> None:
        if self._off is None and keep:
            self.tape.fetched(dataset, batch)
        elif self._off is None:
            self.tape.passed_over(dataset)

    def rest_ends(self, stream: Stream, *, within: bool) -> None:
        if self._off is None and stream is self._stream and self._folder is not None:
            self._anew, self._unrecorded = True, within
            self.snapshots.gate(self.snapshots.typical_step_s)
            self.tape.rested(stream.step, self._folder, within=within)

    def rolled_back(self, stream: Stream) -> None:
        if self._off is None and stream is self._stream and self._folder is not None:
            self._anew = True
            self.snapshots.give_up_live()
            self.tape.rested(stream.step, self._folder, within=False)

    def stream_done(self, stream: Stream) -> None:
        if stream is self._stream:
            self._is_over = True
            self.tape.forget_step()
            self.snapshots.give_up_live()
        elif any(stream is one for one, _ in self._others):
            self._others = [(one, at) for one, at in self._others if one is not stream]
            self.snapshots.give_up_live()

    def optimizer_replaced(self, stream: Stream, old: torch.optim.Optimizer | None) -> None:
        if stream is self._stream and stream.step >= self._renewed + self.snapshots.every:
            self._renewed = stream.step
            self._anew = True

    def _snapshot(self, stream: Stream) -> None:
        if self._folder is None or not self.snapshots.is_due(stream, anew=self._anew):
            return
        if not self._anew and not is_common(stream, self.snapshots.every):
            return
        self._anew = False
        self.snapshots.begin(stream, self._folder, list(self.scalers.values()), self._others)
        self.tape.keep_from = self.snapshots.oldest - LEAD_STEPS
        self.tape.keep_head = self.snapshots.keeps_first

    # -- what becomes of it ----------------------------------------------------------------------------------------

    def incident(self, stream: Stream, folder: Path, bundle: Path) -> None:
        if stream is not self._stream and self._stream is not None:
            return
        folder = recording_folder(folder, stream.name)
        whole = False
        if self._off is None:
            self.tape.incident(folder)
            self.snapshots.settle()
            whole = self.tape.flush()
        wrong = link_recording(find_recording(folder), bundle)
        note = UNRECORDED if self._unrecorded else None if whole else NOT_WHOLE
        seal_recording(bundle, note=wrong or self._off or note)

    def free_disk(self) -> bool:
        folder, self._folder = self._folder, None
        if folder is None:
            return False
        self._stop("the disk is full: the recorded steps were deleted to make room, so they cannot be replayed")
        remove_recording(folder)
        return True

    def why_not(self, stream: Stream) -> str | None:
        if self._off is None and self._stream is not None and stream is not self._stream:
            return "only the steps of the first two optimizers are on a tape"
        return self._off

    def hold(self, stream: Stream, folder: Path, *, onset: int) -> Callable[[Path], None]:
        """Hold the last snapshot before the onset and all later ones, and as many older ones as the budget allows."""
        off = self.why_not(stream)
        folder = recording_folder(folder, stream.name)
        last, share = stream.step, int(self._size_bytes_max * HELD_SHARE)

        def link(bundle: Path) -> None:
            if off is not None:
                seal_recording(bundle, note=off)
                return
            whole = self.tape.flush()
            with self.snapshots.files:
                part = find_recording(folder).around(onset, last=last, size_bytes_max=share)
                wrong = link_recording(part, bundle)
            seal_recording(bundle, note=wrong or (None if whole else NOT_WHOLE))

        return link

    def close(self, *, finished: bool, noted: bool) -> None:
        self._off = self._off or "the run is over"
        keep = self._keep or not finished or noted
        if self._folder is not None and self._stream is not None and self._stream.name == MAIN:
            keep = needed_by_others(self._folder) or keep
        self.snapshots.close()
        self.tape.close(write=keep)
        if self._folder is not None and not keep:
            remove_recording(self._folder)

    def forget(self) -> None:
        self._off = "a forked process"

    @property
    def memory_bytes(self) -> int:
        return self.tape.memory_bytes + self.snapshots.memory_bytes

    def _stop(self, why: str) -> None:
        self._off = why
        self._note(why)
        self.snapshots.close()
        self.tape.close(write=False)


def link_recording(recording: Recording, bundle: Path) -> str | None:
    """Link the recording's files into the bundle, or copy them without hard links. Returns an error text or None."""
    target = bundle / REPLAY_FOLDER
    target.mkdir(exist_ok=True)
    try:
        for name in recording.files():
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(recording.folder / name, place)
            except FileNotFoundError:
                continue  # the oldest file was deleted meanwhile
            except own(OSError):
                shutil.copyfile(recording.folder / name, place)
    except own(OSError) as error:
        return f"not all of the recording could be put into the bundle: {error}"
    return None


def seal_recording(bundle: Path, *, note: str | None) -> None:
    """Record which parts of the recording are in the bundle, and seal it again."""
    target = bundle / REPLAY_FOLDER
    target.mkdir(exist_ok=True)
    found = find_recording(bundle)
    document = {
        "format": "steadytrain.replay",
        "version": 1,
        "snapshots": [shot.step for shot in found.snapshots],
        "steps": [min(chunk.first for chunk in found.chunks), found.last_step] if found.chunks else None,
        "starts": found.starts(),
        "note": note,
    }
    write_json(target / REPLAY_FILE, document)
    seal(bundle, *(path.relative_to(bundle).as_posix() for path in target.rglob("*") if path.is_file()))
