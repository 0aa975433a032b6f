"""The steps of the run that this one goes on from, read from its folder into the memory of the detectors.

A training that goes on from a checkpoint is a run with a folder of its own. Told which run it goes on from, it counts
its steps on from there, and its detectors judge by what was usual before, from the first look on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steadytrain.capture.step import ranks
from steadytrain.core.model import GRADIENT_ABSENT, Reading, Window
from steadytrain.detection.step_history import STEPS_MAX, TABLES_KEPT, StepHistory
from steadytrain.storage.ranks_of_run import rank_folder
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.storage.segments import StepRecord

if TYPE_CHECKING:
    from collections.abc import Mapping


def history_of(stream: str, continues: Mapping[str, Any]) -> tuple[StepHistory, int]:
    """The memory of ``stream`` as it was after that step of that run, and the step; empty where it had none such."""
    history, step = StepHistory(stream=stream), int(continues["step"])
    run = _of_this_rank(Path(continues["run_dir"]))
    if stream not in run.streams():
        return history, 0
    window = run.window(stream)
    stop = int(np.searchsorted(window.steps, step, side="right"))
    start = max(0, stop - STEPS_MAX, _thinned(window, stop))
    for record in _records(window, range(start, stop)):
        history.append(record, window.tensor_names)
    first = int(window.steps[start]) if start < stop else step + 1
    for name in TABLES_KEPT:
        if name in run.tables(stream):
            table = run.table(name, stream).between(first, step)
            for at in range(len(table)):
                reading = Reading(name, table.rows, table.columns, table.values[at])
                history.read(int(table.steps[at]), float(table.time[at]), reading)
    history.resumed = (step + 1,)
    return history, step


def _of_this_rank(path: Path) -> Run:
    own = rank_folder(path, ranks.rank())
    return open_run(own if own.is_dir() else path)


def _thinned(window: Window, stop: int) -> int:
    """Where the steps before ``stop`` begin whose gradient norms are all still on disk."""
    if not window.tensor_names:
        return 0
    gone = np.flatnonzero((window.gradient_norms[:stop] == GRADIENT_ABSENT).all(axis=1))
    return int(gone[-1]) + 1 if len(gone) else 0


def _records(window: Window, rows: range) -> list[StepRecord]:
    has_norms = len(window.gradient_norms) == len(window)
    none = np.zeros(0, np.float32)
    return [
        StepRecord(
            step=int(window.steps[at]),
            time=float(window.time[at]),
            scalars={
                name: float(values[at]) if window.present[name][at] else None for name, values in window.signals.items()
            },
            gradient_norms=window.gradient_norms[at] if has_norms else none,
            skipped=bool(window.skipped[at]),
            refused=bool(window.refused[at]),
        )
        for at in rows
    ]
