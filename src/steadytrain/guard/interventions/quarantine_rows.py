from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, final

from steadytrain.guard.intervention import Intervention, Numbers
from steadytrain.storage.bundle import write_json

if TYPE_CHECKING:
    from steadytrain.core.incident import Samples
    from steadytrain.guard.live import Live

FILE = "quarantine.json"
SCHEMA = "steadytrain.quarantine/1"
STEPS_KEPT = 64
"""A symptom is found at most so many steps after its first one."""

ROWS_MAX = 10_000
"""Rows that are remembered: 40 KB of indices. A run that needs more has no bad rows, but a bad data set."""

UNKNOWN = "the data set's rows of step {step} are not known: no loader drew them by index, or the step is too long ago"
FULL = "{count:,} rows are in quarantine, as many as may be"


@final
@dataclass
class QuarantineRows(Intervention):
    """Remember the rows of the bad batch, and skip the update of a step that gets them again.

    The bad batch is that of the first step since the onset whose loss or gradient norm is an outlier among those
    before, and without one that of the onset.

    Rows with NaN or Inf are remembered one by one: each of them makes a step be skipped. Without such rows the whole
    batch is: then a step is skipped if at least ``share`` of its rows are remembered, so one that a shuffled epoch has
    mixed with others is not. The indices are kept in ``quarantine.json`` in the run folder. It holds to the end of the
    run, or until it is taken back by hand. Skipped updates count against the budget. A policy that names it follows the
    rows of every step, which on a GPU waits for the inputs of the model.

    Args:
        share: of the rows of a batch.
    """

    share: float = 0.5
    replayed: ClassVar[bool] = True
    stays: ClassVar[bool] = True
    watches: ClassVar[bool] = True
    _seen: deque[tuple[int, tuple[Samples, ...]]] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))
    _bad: dict[str, set[int]] = field(default_factory=dict)
    """Rows that are wrong for themselves, by the name of their data set."""

    _batches: dict[str, set[int]] = field(default_factory=dict)
    """Rows of batches that were wrong."""

    def check(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise ValueError(f"share {self.share}: must be above 0, at most 1")

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        before, step = self._count, _bad_step(live)
        samples = next((seen for at, seen in self._seen if at == step), ())
        if not samples:
            calls = next((calls for at, calls in live.run.ring.steps() if at == step), [])
            samples = live.run.draws.samples_of_earlier(calls)
        if not samples:
            live.cannot(UNKNOWN.format(step=step))
        for one in samples:
            wrong = [one.indices[row] for row in one.nonfinite_rows]
            held = (self._bad if wrong else self._batches).setdefault(one.dataset, set())
            held.update(wrong or one.indices)
        if self._count > ROWS_MAX:
            live.cannot(FULL.format(count=before))
        self._write(live)
        return {"rows": float(before)}, {"rows": float(self._count), "bad_step": float(step)}

    again = apply

    def gate(self, live: Live) -> str | None:
        samples = live.run.draws.samples_of(live.run.seen.micro_batches)
        self._seen.append((live.step + 1, samples))
        for one in samples:
            bad = self._bad.get(one.dataset, set()).intersection(one.indices)
            if bad:
                return f"its batch holds {one.dataset}[{min(bad)}], which is in quarantine"
            known = self._batches.get(one.dataset, set())
            share = sum(index in known for index in one.indices) / len(one.indices)
            if share >= self.share:
                return f"{share:.0%} of the rows of its batch are in quarantine"
        return None

    def is_over(self, live: Live) -> bool:
        return not self._count

    @property
    def _count(self) -> int:
        return sum(len(rows) for rows in (*self._bad.values(), *self._batches.values()))

    def _write(self, live: Live) -> None:
        kinds = {"rows": self._bad, "batches": self._batches}
        data = {name: {one: sorted(rows) for one, rows in held.items()} for name, held in kinds.items()}
        write_json(live.run.recorder.begin().path / FILE, {"schema": SCHEMA, "share": self.share, **data})


def _bad_step(live: Live) -> int:
    """The onset of a symptom is where the level was left, and may lie before the batch that spoilt it."""
    from steadytrain.guard.outliers import outlier

    onset = min(live.onset, live.step)
    if live.stream is None:
        return onset
    window = live.stream.history.window()
    found = [
        int(step)
        for series in (window.applied("loss"), window.applied("gradient_norm"))
        for at, step in enumerate(series.steps)
        if step >= onset and outlier(series.values[:at], float(series.values[at]))
    ]
    return min(found, default=onset)
