"""The steps of one stream in memory, for the detectors and the bundle: long for scalars, shorter for tensors."""

from __future__ import annotations

import numpy as np

from steadytrain.model import GRADIENT_ABSENT, Window
from steadytrain.store.segments import SCALARS, StepRecord

STEPS_MAX = 2048
TENSOR_STEPS_MAX = 512
TENSOR_STEPS_MIN = 16
TENSOR_BYTES_MAX = 16 << 20


class History:
    """Appends steps into preallocated arrays twice the window's length, so that a window is a slice and no copy."""

    def __init__(self, *, stream: str) -> None:
        self._stream = stream
        self._count = 0
        self._heads = np.zeros((2 * STEPS_MAX, 2), np.float64)
        self._numbers = np.zeros(2 * STEPS_MAX, np.int64)
        self._values = np.zeros((len(SCALARS), 2 * STEPS_MAX), np.float64)
        self._present = np.zeros((len(SCALARS), 2 * STEPS_MAX), np.bool_)
        self._flags = np.zeros((2, 2 * STEPS_MAX), np.bool_)
        self._tensor_names: tuple[str, ...] = ()
        self._norms: np.ndarray[tuple[int, int], np.dtype[np.float32]] = np.zeros((0, 0), np.float32)
        self._tensor_rows = 0
        self._resize(())

    def append(self, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        if tensor_names != self._tensor_names:
            self._resize(tensor_names)
        if self._count == 2 * STEPS_MAX:
            self._keep_newest()
        at = self._count
        self._numbers[at] = record.step
        self._heads[at, 0] = record.time
        for position, name in enumerate(SCALARS):
            value = record.scalars.get(name)
            self._present[position, at] = value is not None
            self._values[position, at] = 0.0 if value is None else value
        self._flags[0, at], self._flags[1, at] = record.skipped, record.refused
        self._count += 1
        keep = self._tensor_steps()
        if self._tensor_rows == 2 * keep:
            self._norms[:keep] = self._norms[keep : 2 * keep].copy()
            self._tensor_rows = keep
        self._norms[self._tensor_rows] = record.gradient_norms
        self._tensor_rows += 1

    def window(self) -> Window:
        """The last ``STEPS_MAX`` steps with their scalars, without tensors."""
        return self._window(min(self._count, STEPS_MAX))

    def recent(self) -> Window:
        """The last steps with the gradient norm of every tensor, as many as the memory bound allows."""
        rows = min(self._tensor_rows, self._tensor_steps(), self._count)
        window = self._window(rows)
        norms = self._norms[self._tensor_rows - rows : self._tensor_rows]
        return Window(**{**window.__dict__, "tensor_names": self._tensor_names, "gradient_norms": norms})

    @property
    def size_bytes(self) -> int:
        arrays = (self._heads, self._numbers, self._values, self._present, self._flags, self._norms)
        return sum(array.nbytes for array in arrays)

    def _window(self, rows: int) -> Window:
        cut = slice(self._count - rows, self._count)
        return Window(
            steps=self._numbers[cut],
            time=self._heads[cut, 0],
            signals={name: self._values[position, cut] for position, name in enumerate(SCALARS)},
            present={name: self._present[position, cut] for position, name in enumerate(SCALARS)},
            skipped=self._flags[0, cut],
            refused=self._flags[1, cut],
            stream=self._stream,
        )

    def _tensor_steps(self) -> int:
        per_step = 4 * max(1, len(self._tensor_names))
        return max(TENSOR_STEPS_MIN, min(TENSOR_STEPS_MAX, TENSOR_BYTES_MAX // (2 * per_step)))

    def _resize(self, tensor_names: tuple[str, ...]) -> None:
        """Other tensors than before: keep the rows, by name."""
        column = {name: position for position, name in enumerate(self._tensor_names)}
        old, old_rows = self._norms, min(self._tensor_rows, self._tensor_steps())
        self._tensor_names = tensor_names
        keep = self._tensor_steps()
        rows = min(old_rows, keep)
        self._norms = np.full((2 * keep, len(tensor_names)), GRADIENT_ABSENT, np.float32)
        for position, name in enumerate(tensor_names):
            if name in column:
                self._norms[:rows, position] = old[self._tensor_rows - rows : self._tensor_rows, column[name]]
        self._tensor_rows = rows

    def _keep_newest(self) -> None:
        for array in (self._heads, self._numbers):
            array[:STEPS_MAX] = array[STEPS_MAX:].copy()
        for table in (self._values, self._present, self._flags):
            table[:, :STEPS_MAX] = table[:, STEPS_MAX:].copy()
        self._count = STEPS_MAX
