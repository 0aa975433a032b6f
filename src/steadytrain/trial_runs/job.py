"""The job of a launched process: one trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from steadytrain.experiments.specs import Outcome, Spec
from steadytrain.trial_runs.changes import LiveChange
from steadytrain.trial_runs.launched_script import Launched


@dataclass(frozen=True)
class Job:
    """One spec, its changes in this process, and the receiver of its outcome. ``report`` does not return."""

    spec: Spec
    changes: Sequence[LiveChange]
    report: Callable[[Outcome], None]
    began: float = 0.0
    """Start time by ``time.perf_counter``; 0 if the duration is not needed."""

    @property
    def own_batches(self) -> bool:
        """Whether the script keeps its own batches and arguments."""
        return any(change.own_batches for change in self.changes)

    def changed(self, process: Launched, step: int | None, batch: Any) -> Any:
        """A batch of a loader with all changes applied."""
        for change in self.changes:
            batch = change.fetched(process, step, batch)
        return batch

    def end(self, outcome: Outcome) -> None:
        seconds = time.perf_counter() - self.began if self.began else 0.0
        self.report(replace(outcome, seconds=round(seconds, 3)))
        raise AssertionError("the process was to end")
