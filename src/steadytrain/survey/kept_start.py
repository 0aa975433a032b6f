"""Keeps the state after one replayed step, from which trials can start later."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from steadytrain.capture.incident.freeze import free_bytes
from steadytrain.capture.snapshots.buffer import size_bytes
from steadytrain.capture.snapshots.safetensors_writer import write_tensors
from steadytrain.capture.snapshots.snapshot_state import state_of
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.storage.bundle import write_json
from steadytrain.storage.tape_files import SNAPSHOTS_FOLDER, STATE_FILE, STATE_TENSORS, snapshot_name

KEPT_BYTES_MAX = 512 << 20
"""A larger state is not kept: its trials start at the run's own snapshot."""


FREE_TIMES = 3
"""The state is written once, copied once, and leaves as much room."""


class KeptStart:
    """Writes the state after ``step`` under ``folder``, as the run writes a snapshot."""

    def __init__(self, step: int, folder: Path) -> None:
        self._step, self._folder = step, folder
        self._over = False

    def call_begins(self, now: int, stream: Stream, scalers: Iterable[Any]) -> None:
        """The first call of the model in step ``now``: what the script changed after its update belongs to the state.
        What cannot be read or written costs the state, not the survey."""
        if self._over or now <= self._step:
            return
        self._over = True
        if now == self._step + 1:
            with suppress(Exception):
                self._write(stream, scalers)

    def _write(self, stream: Stream, scalers: Iterable[Any]) -> None:
        document, tensors, _ = state_of(stream, list(scalers))
        size = size_bytes(tensors.values())
        if document["not_kept"] or size > KEPT_BYTES_MAX or FREE_TIMES * size > free_bytes(self._folder):
            return
        place = self._folder / SNAPSHOTS_FOLDER / snapshot_name(self._step)
        place.mkdir(parents=True, exist_ok=True)
        digests = write_tensors(place / STATE_TENSORS, tensors, go_on=lambda: True)
        size = (place / STATE_TENSORS).stat().st_size
        whole = {**document, "step": self._step, "tensor_bytes": size, "digests": digests}
        write_json(place / STATE_FILE, whole)
