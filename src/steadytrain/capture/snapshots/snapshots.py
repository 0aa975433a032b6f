"""Takes snapshots of the state at the beginning of a step, while its forward and backward run.

The state is copied into a slot, and a separate thread writes the copy slowly: it rests nine times as long as it works,
so training keeps its core. The training thread copies what it can in a twelfth of a step. The other thread copies the
rest from the live tensors, which do not change between an update and the next gate. The gate waits a little for an
unfinished copy and otherwise gives the snapshot up. Before a snapshot counts, the version counters of all tensors are
compared. If there is no memory for a slot, only the tensors that forward changes (buffers) are copied, and the thread
writes the rest directly from the live tensors to disk.

A snapshot is taken every ``EVERY_STEPS``, less often if that costs more than ``COST_SHARE`` of the run. Not here: the
contents of a state (``snapshot_state``), and which snapshots stay (``snapshot_thinning``).
"""

from __future__ import annotations

import math
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from steadytrain.capture.incident.freeze import free_bytes
from steadytrain.capture.snapshots.buffer import StateBuffer, size_bytes
from steadytrain.capture.snapshots.safetensors_writer import GivenUp, write_tensors
from steadytrain.capture.snapshots.snapshot_state import HORIZON_MIN, Others, SnapshotJob, horizon, state_of
from steadytrain.capture.snapshots.snapshot_thinning import SPARE, part_of, put_by, retire, thinned
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.torch_private import VERSION
from steadytrain.storage.documents import COMPACT, as_json
from steadytrain.storage.tape_files import (
    SNAPSHOTS_FOLDER,
    STATE_FILE,
    STATE_TENSORS,
    find_chunks,
    find_snapshots,
    remove_snapshot,
    snapshot_name,
)

EVERY_STEPS = 64
COST_SHARE = 0.01
"""The share of the run's time that snapshots may cost: training stalls plus the thread's processor time."""

STALL_SHARE = 0.1
"""The share of a step's time that the training thread may spend per snapshot, copying and waiting at the gate."""

COPIED_BYTES_MAX = 4 << 20
"""A state up to this size is copied at once (0.7 ms at 6 GB/s into an existing slot) and written later."""

COPY_SHARE = 0.08
"""The share of a step's time for copying a larger state at once. With a free core the thread could copy all of it;
without one, its copying costs training twice that time."""

COPY_BYTES_A_S = 3e9
"""The assumed minimum copy speed, to decide if the next tensor fits into that share (measured: 5 to 10 GB/s)."""

REST = 9.0
REST_S_MIN, REST_S_MAX = 0.002, 0.5
"""A copy is written in pieces of 4 MB; after each the thread rests this many times as long as it worked."""

FIRST_SHARE = 1 / 6
"""The share of the snapshot budget (an eighth of the whole) up to which the first snapshot stays for the whole run."""

FAILURES_MAX = 3
STEP_TIMES = 16
CLOSE_WAIT_S = 5.0


class Snapshots:
    """Decides when to take snapshots, passes the state to its thread, and lets the update wait or gives up."""

    def __init__(self, size_bytes_max: int, *, every_steps: int = EVERY_STEPS, cost_share: float = COST_SHARE) -> None:
        self.note: str | None = None
        """Why no more snapshots are taken; None while they are."""

        self.failure: Exception | None = None
        self.stall_s = 0.0
        """Seconds that the training thread has waited or copied, in total."""

        self.worst_stall_s = 0.0
        self.busy_s = 0.0
        self.asked = 0
        self.taken = 0
        self.oldest = 0
        """The step of the oldest snapshot kept, apart from the run's first."""

        self.keeps_first = False
        """Whether the run's first snapshot stays."""

        self.files = threading.Lock()
        """Held while snapshots are deleted, and by code that needs them to stay meanwhile."""

        self.every = every_steps
        self._cost_share = cost_share
        self.size_bytes_max = size_bytes_max
        self._last = 0
        self._failed = 0
        self._step_s: deque[float] = deque(maxlen=STEP_TIMES)
        self._slot = StateBuffer()
        self._was_without_slot = False
        self._worked_s = 0.0
        self._job: SnapshotJob | None = None
        self._folder: Path | None = None
        self._condition = threading.Condition()
        self._stopping = False
        self._tidied_s = 0.0
        self._thread: threading.Thread | None = None
        self._horizon = HORIZON_MIN
        self._first: int | None = None

    # -- the training thread ---------------------------------------------------------------------------------------

    def is_due(self, stream: Stream, *, anew: bool = False) -> bool:
        """Whether to take a snapshot of the state after the last step of ``stream``. ``anew``: the tape has a gap."""
        if self.note is not None or stream.step == 0 or self._job is not None:
            return False
        return anew or self._last == 0 or stream.step >= self._last + self.every

    def begin(self, stream: Stream, folder: Path, scalers: Sequence[Any], others: Others = ()) -> None:
        """Take a snapshot; the first forward of the next step is about to run. ``others`` take turns with ``stream``.

        It has no schedulers: the tape records their effect at every gate, and a search for them among all objects of
        the process would be the longest stall of all.
        """
        started = time.perf_counter()
        self._last = stream.step
        self._horizon = horizon(stream.optimizers)
        document, tensors, moving = state_of(stream, scalers, others)
        size = size_bytes(tensors.values())
        self._folder = folder / SNAPSHOTS_FOLDER
        why = self._obstacle(tensors, folder)
        if why is not None:
            self.note = why
            return
        had_slot = self._slot.has_all(tensors)
        deadline = started + COPY_SHARE * self.typical_step_s
        live = {}
        for name, tensor in tensors.items():
            if (
                size <= COPIED_BYTES_MAX
                or name in moving
                or tensor.device.type != "cpu"
                or self._is_in_time(name, tensor, deadline)
            ):
                tensors[name] = self._slot.copied(name, tensor)
            else:
                live[name] = tensor
        versions = [(tensor, VERSION.of(tensor)) for tensor in live.values()]
        job = SnapshotJob(
            stream.step, self._folder / snapshot_name(stream.step), document, tensors, live, had_slot, versions
        )
        self.asked += 1
        job.stalled_s = time.perf_counter() - started
        self._stalled(job.stalled_s)
        with self._condition:
            self._job = job
            self._condition.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="steadytrain-snapshots", daemon=True)
            self._thread.start()

    def gate(self, step_s: float | None) -> None:
        """The update is about to run. ``step_s`` is the time of the step at the gate, None at another optimizer's."""
        if step_s is not None:
            self._step_s.append(step_s)
        job = self._job
        if job is None:
            return
        started = time.perf_counter()
        if job.live and not job.given_up:
            with self._condition:
                wait_s = max(0.0, STALL_SHARE * self.typical_step_s - job.stalled_s)
                if not self._condition.wait_for(lambda: job.over or not job.live, wait_s):
                    job.given_up = True
            self._stalled(time.perf_counter() - started, job.stalled_s)
        if job.tidied:
            self._settle(job)

    def close(self) -> None:
        """End the thread. A snapshot in progress is given up, unless its copy is complete."""
        with self._condition:
            if self._job is not None and self._job.live:
                self._job.given_up = True
            self._stopping = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_WAIT_S)
            if not self._thread.is_alive() and self._folder is not None:
                shutil.rmtree(self._folder / SPARE, ignore_errors=True)

    def give_up_live(self) -> None:
        """The model's training is over: drop its tensors from a snapshot in progress."""
        with self._condition:
            if self._job is not None and self._job.live:
                self._job.given_up = True
                self._condition.notify_all()

    def settle(self) -> None:
        """Wait until the current snapshot is finished or given up; after that no file changes."""
        job = self._job
        if job is None:
            return
        with self._condition:
            job.hurried = True
            self._condition.notify_all()
            if not self._condition.wait_for(lambda: job.tidied, CLOSE_WAIT_S):
                job.given_up = True
                self._condition.wait_for(lambda: job.tidied, CLOSE_WAIT_S)
        if job.tidied:
            self._settle(job)
        else:
            self._give_up(TimeoutError(f"one was not written within {2 * CLOSE_WAIT_S:.0f} s"))

    @property
    def typical_step_s(self) -> float:
        return float(np.median(self._step_s)) if self._step_s else 0.0

    @property
    def memory_bytes(self) -> int:
        return self._slot.memory_bytes

    def _settle(self, job: SnapshotJob) -> None:
        self._job = None
        self.busy_s += job.busy_s
        if job.error is not None:
            self._give_up(job.error)
            return
        if job.whole:
            self.taken += 1
            self._failed = 0
        elif not job.had_slot and not self._was_without_slot:
            self._was_without_slot = True
            self._last = 0  # the slot exists now: try again at the next step
            return
        else:
            self._failed += 1
            self.every *= 2
            if self._failed >= FAILURES_MAX:
                self.note = (
                    f"no more snapshots: {FAILURES_MAX} in a row were not copied within a step of "
                    f"{self.typical_step_s * 1000:.0f} ms; a replay begins at the last whole one"
                )
            return
        cost = self.stall_s + self.busy_s + self._tidied_s
        typical = self.typical_step_s
        if typical > 0:
            self.every = max(self.every, math.ceil(cost / self.taken / (self._cost_share * typical)))

    def _give_up(self, error: Exception) -> None:
        self.failure = error
        self.note = f"no more snapshots: {error}"

    def _obstacle(self, tensors: Mapping[str, Tensor], folder: Path) -> str | None:
        size = size_bytes(tensors.values())
        if 2 * size > self.size_bytes_max:
            return (
                f"no snapshots: two of {size / 1e6:.0f} MB are over the bound of {self.size_bytes_max / 1e6:.0f} MB "
                "(--rewind-mb)"
            )
        free = free_bytes(folder)
        if 2 * size > free:
            return f"no snapshots: two of {size / 1e6:.1f} MB would fill the disk ({free / 1e6:.1f} MB free)"
        elsewhere = {name: tensor for name, tensor in tensors.items() if tensor.device.type != "cpu"}
        if not self._slot.may_take(elsewhere):
            copied = size_bytes(elsewhere.values())
            return f"no snapshots: there is no memory on the host for a copy of {copied / 1e6:.0f} MB"
        return None

    def _is_in_time(self, name: str, tensor: Tensor, deadline: float) -> bool:
        """Whether the training thread may copy this tensor too: it has memory and fits the deadline."""
        copying_s = size_bytes([tensor]) / COPY_BYTES_A_S
        return time.perf_counter() + copying_s <= deadline and self._slot.has(name, tensor)

    def _stalled(self, seconds: float, before_s: float = 0.0) -> None:
        """Training has waited ``seconds`` for a snapshot, after ``before_s`` seconds for the same one."""
        self.stall_s += seconds
        self.worst_stall_s = max(self.worst_stall_s, before_s + seconds)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._stopping or (self._job is not None and not self._job.over))
                job = self._job
                if job is None or job.over:
                    return
            started = time.thread_time()
            try:
                self._write(job)
            except GivenUp:
                pass
            except Exception as error:
                job.error = error
            job.busy_s = time.thread_time() - started
            with self._condition:
                # The gate need not wait for the cleanup.
                job.over = True
                self._condition.notify_all()
            started = time.thread_time()
            try:
                self._tidy(job)
            except Exception as error:
                self._give_up(error)
            self._tidied_s += time.thread_time() - started
            with self._condition:
                job.tidied = True
                job.tensors, job.live, job.versions = {}, {}, []
                self._condition.notify_all()

    def _goes_on(self, job: SnapshotJob) -> bool:
        """Whether to write the next piece. For a copied state it rests first, unless a caller waits."""
        rest_s = 0.0 if job.live else min(REST * (time.thread_time() - self._worked_s), REST_S_MAX)
        if rest_s > REST_S_MIN:
            self._rest(job, rest_s)
            self._worked_s = time.thread_time()
        return not job.given_up

    def _rest(self, job: SnapshotJob, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: job.hurried or job.given_up or self._stopping, seconds)

    def _copy(self, job: SnapshotJob) -> None:
        """Copy the live tensors into the slot. After that the update may change them.

        Raises:
            GivenUp: the update may already change them, or has changed them.
        """
        for name, tensor in job.live.items():
            job.tensors[name] = self._slot.copied_by_pieces(name, tensor, go_on=lambda: not job.given_up)
        with self._condition:
            if job.given_up or job.were_changed:
                raise GivenUp
            job.live = {}
            self._condition.notify_all()

    def _tidy(self, job: SnapshotJob) -> None:
        if job.error is not None:
            shutil.rmtree(part_of(job.folder), ignore_errors=True)
            return
        if not job.whole:
            put_by(part_of(job.folder))
            if self._slot.may_take(job.live):
                self._slot.make(job.live)
            return
        if self._first is None:
            self._first = job.step
        with self.files:
            self._thin()

    def _write(self, job: SnapshotJob) -> None:
        if job.live and self._slot.may_take(job.live):
            self._copy(job)
        if not job.live and size_bytes(job.tensors.values()) > COPIED_BYTES_MAX:
            self._rest(job, min(self.typical_step_s, REST_S_MAX))  # this step has already lost its share of time
        folder = part_of(job.folder)
        shutil.rmtree(folder, ignore_errors=True)
        spare = folder.with_name(SPARE)
        if spare.is_dir():
            os.replace(spare, folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._worked_s = time.thread_time()
        digests = write_tensors(folder / STATE_TENSORS, job.tensors, go_on=lambda: self._goes_on(job))
        document = {**job.document, "tensor_bytes": (folder / STATE_TENSORS).stat().st_size, "digests": digests}
        text = as_json(document, separators=COMPACT, ensure_ascii=False, allow_nan=False)
        (folder / STATE_FILE).write_text(text, encoding="utf-8", errors="backslashreplace")
        with self._condition:
            # From here on the gate may let the update run, because it is now known whether the tensors changed.
            if job.given_up or (job.live and job.were_changed):
                return
            shutil.rmtree(job.folder, ignore_errors=True)
            os.replace(folder, job.folder)
            job.whole = True

    def _thin(self) -> None:
        assert self._folder is not None
        shots = find_snapshots(self._folder.parent)
        tape = find_chunks(self._folder.parent)
        for shot in shots[:-1]:
            following = shot.step + 1
            if tape and following < tape[-1].first and not any(one.first <= following <= one.last for one in tape):
                remove_snapshot(shot)  # the tape no longer has the steps after it
        shots = find_snapshots(self._folder.parent)
        sizes = {shot.step: shot.tensors.stat().st_size for shot in shots}
        always = {step for step in sizes if step == self._first and sizes[step] <= FIRST_SHARE * self.size_bytes_max}
        self.keeps_first = bool(always)
        left = self.size_bytes_max - sum(sizes[step] for step in always)
        others = {step: size for step, size in sizes.items() if step not in always}
        kept = always | thinned(others, horizon_steps=self._horizon, size_bytes_max=left)
        for shot in shots:
            if shot.step not in kept:
                retire(shot)
        self.oldest = min(kept - always, default=min(kept))
