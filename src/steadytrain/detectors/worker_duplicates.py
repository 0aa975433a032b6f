"""The workers of a data loader all give the same batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.core.model import Symptom, Window
from steadytrain.core.plugins import threshold
from steadytrain.detectors import ScriptRule
from steadytrain.statistics.script_rows import script_rows


@final
@dataclass(frozen=True)
class WorkerDuplicates(ScriptRule):
    """Each worker of the data loader gives the same batches as all the others.

    Means:
        Each worker has a copy of the data set. The first batches of a pass were compared by a sample of their values:
        each came once from every worker. The model trains on it as many times in a row as there are workers, and a pass
        is as many times as long.

    Causes:
        - an `IterableDataset` whose `__iter__` does not split its rows by `torch.utils.data.get_worker_info()`
        - a generator with a fixed seed in the data set, which each worker copies

    Next:
        1. Give each worker its share: rows `info.id::info.num_workers`, or its own files.
        2. Seed by `torch.utils.data.get_worker_info().seed`.
        3. Count the rows of a pass with 0 workers and with several: the numbers must be equal.
    """

    states_fact: ClassVar[bool] = True
    workers_min: int = threshold(2, "workers with equal batches")

    def check(self, window: Window) -> tuple[Symptom, ...]:
        return tuple(
            Symptom(
                name="worker-duplicates",
                severity="warning",
                first_step=int(row.steps[0]),
                last_step=int(row.steps[-1]),
                message=f"all {row.last:.0f} workers give the same batches of {row.place}",
                signals=("script.value",),
                numbers={"workers": row.last},
            )
            for row in script_rows(window, "equal-workers")[:1]
            if row.last >= self.workers_min
        )
