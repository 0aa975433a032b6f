"""What one trial runs in a launched process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from steadytrain.experiments.specs import Outcome, Spec
from steadytrain.trial_runs.changes import LiveChange


@dataclass(frozen=True)
class Job:
    """One spec, its changes as they act here, and where its outcome goes; ``report`` does not return."""

    spec: Spec
    changes: Sequence[LiveChange]
    report: Callable[[Outcome], None]
    began: float = 0.0
    """By ``time.perf_counter``; 0 where nobody asks how long it took."""

    def end(self, outcome: Outcome) -> None:
        seconds = time.perf_counter() - self.began if self.began else 0.0
        self.report(replace(outcome, seconds=round(seconds, 3)))
        raise AssertionError("the process was to end")
