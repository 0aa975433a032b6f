"""A run that is written step by step while it is watched: what the tests of the live view follow."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import builders
from steadytrain.core.model import Reading
from steadytrain.storage.run_folder import RunWriter
from steadytrain.storage.segments import SegmentWriter, StepRecord
from steadytrain.storage.tables import TableWriter

NAMES = ("body.0.weight", "body.1.weight", "head.weight")
NO_TENSORS = np.zeros(0, np.float32)


class LiveRun:
    """A run folder whose writer is this process, so that it counts as running."""

    def __init__(self, path: Path, names: Sequence[str] = NAMES) -> None:
        self.path = path
        self.names = tuple(names)
        self.run = RunWriter(path, {**builders.DESCRIPTION, "name": path.name})
        weakref.finalize(self, self.run.close)  # most tests end before their run; Python 3.13 warns of an open database
        self.step = 0
        self.began = time.time()
        self._steps = SegmentWriter(path / "steps" / "main", stream="main")
        self._tables: dict[str, TableWriter] = {}

    def train(self, count: int = 1, *, loss: float | None = None, seconds: float = 0.1, **signals: float) -> None:
        """``count`` more steps that took ``seconds`` each. The loss falls, or is ``loss``."""
        for _ in range(count):
            self.step += 1
            own = 1.0 + 8.0 / self.step if loss is None else loss
            scalars = {"loss": own, "gradient_norm": 0.5, "learning_rate": 3e-4, "step_s": seconds, **signals}
            self._steps.append(StepRecord(self.step, self.began + self.step * seconds, scalars, NO_TENSORS), ())

    def read(
        self, table: str, columns: Sequence[str], values: Sequence[Sequence[float]], rows: Sequence[str] = ()
    ) -> None:
        """One reading at the last step."""
        writer = self._tables.setdefault(table, TableWriter(self.path / "tables" / "main", table))
        cells = np.array(values, np.float32)
        writer.append(self.step, time.time(), Reading(table, tuple(rows) or self.names, tuple(columns), cells))

    def end(self, how: str = "finished", status: int = 0) -> None:
        self.run.set_fact("ended", how)
        self.run.set_fact("exit_status", status)
        self.run.close()
