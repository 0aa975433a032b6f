"""The tape: the inputs of the last steps, in a bounded ring in memory; a separate thread writes them to disk.

For each step it has every model call (arguments, random states before, at and after it, autocast), the loaders'
batches, the hyper-parameters at the gate, and digests of loss, gradients and inputs. The training thread only makes
copies; encoding, digests and writing happen in the other thread. What cannot be kept is named, never replaced.

Not here: the contents of one step (``tape_steps``), state (``snapshots``), and keeping or deleting the whole
(``rewind``).
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from steadytrain.capture.snapshots.random_parts import RandomTable
from steadytrain.capture.snapshots.safetensors_writer import write_tensors
from steadytrain.capture.snapshots.tape_steps import (
    Call,
    OtherGate,
    TapeStep,
    chunk_document,
    copied_fetch,
    plain_settings,
)
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import MicroBatch, RandomState
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.core.incident import Samples
from steadytrain.storage.documents import COMPACT, as_json
from steadytrain.storage.tape_files import (
    PART,
    TAPE_FOLDER,
    Chunk,
    chunk_name,
    find_chunks,
    remove_chunk,
)

RING_BYTES_MAX = 64 << 20
"""Copies of batches that wait to be written. More are dropped (if the disk is slower than the run)."""

STEP_BYTES_MAX = RING_BYTES_MAX // 2
CHUNK_BYTES = 8 << 20
CHUNK_S = 2.0
"""A chunk is written at this size or age; a killed process loses at most that."""

CHUNK_STEPS_MAX = 512
HEAD_STEPS = 2048
HEAD_SHARE = 0.25
"""The first steps stay for the whole run, up to this number and this share of the tape's budget. With the snapshot
after the first step, they make an early onset replayable even if it is found late."""

CALLS_MAX = 256
OTHER_GATES_MAX = 64
FETCHES_MAX = 256
FLUSH_WAIT_S = 20.0
TRANSFORMED = "its model is called inside of a transform (vmap, grad), where inputs have no values of their own"
RESTED = "it was not recorded, because the run rested (--every-step records all)"


class Tape:
    """The ring and its thread. Only the training thread calls the methods, and none waits, except :meth:`flush`."""

    def __init__(self, size_bytes_max: int) -> None:
        self.failure: Exception | None = None
        self.dropped = 0
        self.keep_from = 0
        """Chunks whose last step is before this one are no longer needed."""

        self.keep_head = True
        """Whether the run's first steps stay nevertheless."""

        self.busy_s = 0.0
        """Processor time of the thread, in seconds."""

        self._size_bytes_max = size_bytes_max
        self._forming = TapeStep()
        self._fetched: dict[int, int] = {}
        self._first_fetched: dict[int, int] | None = None
        self._drawn: Samples | None = None
        self._pending: deque[TapeStep] = deque()
        self._pending_bytes = 0
        self._writing_bytes = 0
        self._condition = threading.Condition()
        self._wanted = 0
        self._first = 0
        self._taken = 0
        self._written = 0
        self._stopping = False
        self._folder: Path | None = None
        self._thread: threading.Thread | None = None
        self._random = RandomTable()

    def bound(self, size_bytes_max: int) -> None:
        """Keep to a smaller budget from now on."""
        self._size_bytes_max = size_bytes_max

    def begin_like(self, other: Tape) -> None:
        """Count the batches of the loaders from where ``other`` stands."""
        self._fetched = dict(other._fetched)

    # -- a step forms ----------------------------------------------------------------------------------------------

    def drawn(self, samples: Samples) -> None:
        """The samples of the next batch."""
        self._drawn = samples

    def fetched(self, dataset: int, batch: Any) -> None:
        number = self._fetched[dataset] = self._fetched.get(dataset, 0) + 1
        samples, self._drawn = self._drawn, None
        if not torch.is_grad_enabled():
            return  # a batch of an evaluation
        fetches = self._forming.fetches
        fetches.append(copied_fetch(dataset, number, batch, samples, size_bytes_max=STEP_BYTES_MAX))
        while len(fetches) > 1 and (
            len(fetches) > FETCHES_MAX or sum(one.size_bytes for one in fetches) > STEP_BYTES_MAX
        ):
            fetches.pop(0)  # an evaluation between steps: only the last batches belong to the next step

    def call_begins(self, batch: MicroBatch) -> None:
        if not self._forming.let_go:
            self._forming.calls.append(Call.of(batch))
            if len(self._forming.calls) > CALLS_MAX:
                self.calls_left_out()

    def calls_left_out(self) -> None:
        """The step in progress has more calls than are recorded."""
        self._leave_out(f"more than {CALLS_MAX} calls of the model")

    def _leave_out(self, why: str) -> None:
        """The step in progress will not be replayed: its inputs are let go."""
        self._forming.left_out, self._forming.calls, self._forming.let_go = why, [], True

    def called_in_transform(self) -> None:
        """A call of the step in progress has inputs without values of their own."""
        self._forming.left_out = TRANSFORMED

    def call_ended(self, batch: MicroBatch, random: RandomState) -> None:
        for call in reversed(self._forming.calls):
            if call.key == id(batch):
                call.random_after = random
                return

    def passed_over(self, dataset: int) -> None:
        """A loader returned a batch in a step that is not recorded."""
        self._fetched[dataset] = self._fetched.get(dataset, 0) + 1

    def rested(self, step: int, folder: Path, *, within: bool) -> None:
        """The steps up to ``step`` were not recorded: it stands on the tape without its calls, with the batches that
        were fetched ahead. ``within``: the step after it has begun, so it is not whole either."""
        last, self._forming = self._forming, TapeStep(left_out=RESTED if within else None)
        last.step, last.left_out, last.fetched = step, RESTED, dict(self._fetched)
        self._put(last, folder)

    def gate(self, stream: Stream, measured: Measurement, *, evaluations: int) -> None:
        """Set the numbers of the step in progress; a later measurement of the same step replaces them."""
        self._measure(self._forming, stream, measured, evaluations=evaluations)

    def other_gate(self, stream: Stream, measured: Measurement) -> None:
        """Another optimizer updates within the step in progress."""
        step = self._forming
        if len(step.others) >= OTHER_GATES_MAX:
            self._leave_out(f"more than {OTHER_GATES_MAX} updates of other optimizers")
            return
        step.others.append(OtherGate(stream.name, len(step.calls), _groups(stream), measured))

    def let_go(self, stream: Stream, measured: Measurement, *, evaluations: int, folder: Path) -> None:
        """Add the step in progress to the ring in its current form: the script makes no update and may continue."""
        calls = [replace(call) for call in self._forming.calls]
        kept = replace(self._forming, calls=calls, fetches=list(self._forming.fetches), no_update=True)
        self._measure(kept, stream, measured, evaluations=evaluations)
        self._put(kept, folder)

    def _measure(self, step: TapeStep, stream: Stream, measured: Measurement, *, evaluations: int) -> None:
        step.step, step.skipped = measured.record.step, measured.record.skipped
        step.refused, step.factor = measured.record.refused, measured.factor
        step.losses, step.names = measured.losses, measured.tensor_names
        step.norms = measured.record.gradient_norms
        step.loss_scale = measured.record.scalars.get("loss_scale")
        step.evaluations = evaluations
        step.fetched = dict(self._fetched)
        if self._first_fetched is None:
            self._first_fetched = dict(self._fetched)
        step.groups = _groups(stream)
        if stream.begins_anew:
            kinds = [type(one).__qualname__ for one in stream.optimizers]
            step.renewed = {"classes": kinds, "without_state": not any(one.state for one in stream.optimizers)}

    def step_ended(self, folder: Path) -> None:
        """Add the step to the ring; the first one starts the thread."""
        step, self._forming = self._forming, TapeStep()
        if step.step:  # else it is already in the ring, as the step of an incident
            self._put(step, folder)

    def incident(self, folder: Path) -> None:
        """Add the step at the gate to the ring, if there is one."""
        if self._forming.step:
            self.step_ended(folder)

    def _put(self, step: TapeStep, folder: Path) -> None:
        if step.size_bytes > STEP_BYTES_MAX:
            size = step.size_bytes
            step.calls, step.fetches = [], []
            step.left_out = f"its batches of {size / 1e6:.0f} MB are over the bound of {STEP_BYTES_MAX / 1e6:.0f} MB"
        with self._condition:
            if self.failure is not None:
                return
            self._pending.append(step)
            self._pending_bytes += step.size_bytes
            while self._pending_bytes + self._writing_bytes > RING_BYTES_MAX and len(self._pending) > 1:
                self._pending_bytes -= self._pending.popleft().size_bytes
                self.dropped += 1
            if self._pending_bytes >= CHUNK_BYTES or len(self._pending) >= CHUNK_STEPS_MAX:
                self._condition.notify_all()
        if self._thread is None:
            self._folder = folder / TAPE_FOLDER
            self._first = step.step
            self._thread = threading.Thread(target=self._work, name="steadytrain-tape", daemon=True)
            self._thread.start()

    def forget_step(self) -> None:
        """Drop the events so far: they belong to no step of the recorded stream, which is over."""
        self._forming = TapeStep()

    def forget_calls(self) -> None:
        """Drop the calls so far: their update is not recorded. Other optimizers' updates and batches stay."""
        self._forming = TapeStep(fetches=self._forming.fetches, others=self._forming.others)

    @property
    def memory_bytes(self) -> int:
        """Memory for copies of batches, of the step in progress and the steps in the ring."""
        return self._forming.size_bytes + self._pending_bytes + self._writing_bytes

    def flush(self, wait_s: float = FLUSH_WAIT_S) -> bool:
        """Wait until the current ring is written; returns whether it was within ``wait_s``. Any thread may call it."""
        with self._condition:
            if self._thread is None:
                return not self._pending
            last = self._last_in_ring()
            self._wanted = max(self._wanted, last)
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._written >= last or not self._writes, wait_s)
            return self._written >= last and self.failure is None

    @property
    def _writes(self) -> bool:
        """Whether the thread will still write the ring."""
        return self.failure is None and not (self._stopping and not self._pending)

    def _last_in_ring(self) -> int:
        """The last step in the ring, or the last one on disk if the ring is empty."""
        return self._pending[-1].step if self._pending else self._taken

    def close(self, *, write: bool) -> None:
        """End the thread. Without ``write`` the ring is discarded."""
        with self._condition:
            self._stopping = True
            if not write:
                self._pending.clear()
                self._pending_bytes = 0
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join(FLUSH_WAIT_S)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(self._is_due, CHUNK_S)
                steps = self._take()
                stopping = self._stopping and not self._pending
            started = time.thread_time()
            written = self._written
            try:
                if steps:
                    self._write(steps)
                    self._prune()
                    written = steps[-1].step
            except Exception as error:
                with self._condition:
                    self.failure = error
                    self._pending.clear()
                    self._pending_bytes = 0
                    stopping = True
            self.busy_s += time.thread_time() - started
            with self._condition:
                self._writing_bytes = 0
                self._written = written
                self._condition.notify_all()
            if stopping:
                return

    def _is_due(self) -> bool:
        if self._stopping:
            return True
        if not self._pending:
            return False
        full = self._pending_bytes >= CHUNK_BYTES or len(self._pending) >= CHUNK_STEPS_MAX
        return full or self._pending[0].step <= self._wanted

    def _take(self) -> list[TapeStep]:
        """The next consecutive steps, about one chunk."""
        steps: list[TapeStep] = []
        size = 0
        while self._pending and size < CHUNK_BYTES and len(steps) < CHUNK_STEPS_MAX:
            if steps and self._pending[0].step != steps[-1].step + 1:
                break
            steps.append(self._pending.popleft())
            size += steps[-1].size_bytes
        self._pending_bytes -= size
        self._writing_bytes = size
        if steps:
            self._taken = steps[-1].step
        return steps

    def _write(self, steps: Sequence[TapeStep]) -> None:
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        name = chunk_name(steps[0].step, steps[-1].step)
        document, tensors = chunk_document(steps, self._random)
        path = self._folder / f"{name}.safetensors"
        part = path.with_name(path.name + PART)
        write_tensors(part, tensors, go_on=lambda: True, with_digests=False)
        document["first_fetched"] = {str(dataset): count for dataset, count in (self._first_fetched or {}).items()}
        document["tensor_bytes"] = part.stat().st_size
        os.replace(part, path)
        text = as_json(document, separators=COMPACT, ensure_ascii=False, allow_nan=False)
        part = self._folder / f"{name}.json{PART}"
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(part, self._folder / f"{name}.json")

    def _prune(self) -> None:
        """Delete chunks over the budget or not needed by any snapshot, except the newest chunk and the first steps."""
        assert self._folder is not None
        chunks = find_chunks(self._folder.parent)
        sizes = [chunk.document.stat().st_size + chunk.tensors.stat().st_size for chunk in chunks]
        total = sum(sizes)
        head = self._head(chunks, sizes)
        for chunk, size in zip(chunks[head:-1], sizes[head:], strict=False):
            if total <= self._size_bytes_max and chunk.last >= self.keep_from:
                return
            remove_chunk(chunk)
            total -= size

    def _head(self, chunks: Sequence[Chunk], sizes: Sequence[int]) -> int:
        """The number of chunks from the run's beginning, without a gap and within their share of the budget."""
        head, reached, total = 0, 0, 0
        for chunk, size in zip(chunks, sizes, strict=True):
            total += size
            joined = not head or chunk.first <= reached + 1
            if not self.keep_head or not joined or chunk.last > self._first + HEAD_STEPS:
                break
            if total > HEAD_SHARE * self._size_bytes_max:
                break
            head, reached = head + 1, chunk.last
        return head


def _groups(stream: Stream) -> list[list[dict[str, Any]]]:
    return [[plain_settings(group) for group in optimizer.param_groups] for optimizer in stream.optimizers]
