"""A training loop recorded and replayed in the test's own process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from steadytrain.capture.hooks.fail_open import raise_own_errors
from steadytrain.capture.settings import Settings
from steadytrain.capture.snapshots.rewind import Rewind
from steadytrain.capture.snapshots.snapshots import Snapshots
from steadytrain.capture.snapshots.stream_rewinds import StreamRewinds
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.optimizer_streams import StepInProgress, Stream
from steadytrain.capture.step.watcher import Watcher
from steadytrain.detection import run_recorder
from steadytrain.replay.engine import Replayer
from steadytrain.replay.own_steps import OwnSteps
from steadytrain.replay.verdict import Replayed
from steadytrain.storage.tape_files import Recording, find_recording, recording_folder

BYTES_MAX = 1 << 30
Loop = Callable[[], None]


@contextmanager
def plain_process() -> Iterator[None]:
    """One thread, and errors of our own are raised. To be entered before the recordings are made."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with raise_own_errors():
        yield
    torch.set_num_threads(threads)


class ReplayOver(BaseException):
    """Ends the loop where the launched process would end."""

    def __init__(self, result: Replayed | str) -> None:
        super().__init__(result)
        self.result = result


class Patient(Rewind):
    """Waits for every snapshot, so that which ones there are does not hang on the machine's speed."""

    def gate(self, stream: Stream, seen: StepInProgress, measured: Measurement) -> None:
        self.snapshots.settle()
        super().gate(stream, seen, measured)


def record(loop: Loop, folder: Path, *, every: int, stream: str = "main") -> Recording:
    """Run ``loop`` under a recorder that takes a snapshot every so many steps, and keep what it recorded."""

    def patient(size_bytes_max: int) -> Rewind:
        snapshots = Snapshots(size_bytes_max, every_steps=every, cost_share=math.inf)
        return Patient(size_bytes_max, note=print, keep=True, snapshots=snapshots)

    observer = StreamRewinds(BYTES_MAX, patient)
    settings = Settings(run_dir=folder, run_name="run", policy="observe")
    watcher = Watcher(settings, tell=print, record=run_recorder.recording(), observer=observer)
    try:
        loop()
    finally:
        watcher.close(ended="finished")
    return find_recording(recording_folder(folder, stream))


def replay(loop: Loop, recording: Recording, first: int, *, own_steps: int = 1) -> Replayed | str:
    """Replay from ``first`` to the last step on the tape."""
    snapshot, until = recording.choose(first=first, until=None)

    def done(result: Replayed | str, trace: object) -> None:
        raise ReplayOver(result)

    own = OwnSteps(own_steps, skips=own_steps < snapshot.step)
    replayer = Replayer(recording, snapshot=snapshot, until=until, own_steps=own, final=None, done=done)
    settings = Settings(run_dir=recording.folder / "unused", run_name="replay", policy="observe")
    watcher = Watcher(settings, tell=print, record=run_recorder.recording(), observer=replayer)
    try:
        loop()
    except ReplayOver as over:
        return over.result
    finally:
        watcher.close(ended="failed")
    raise AssertionError("the loop ended before its replay did")
