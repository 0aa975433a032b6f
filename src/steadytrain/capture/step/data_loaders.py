"""Follows the batches of the script's data loaders. A loop rerun or a replay supplies its own batches here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steadytrain.capture.hooks.guarded_events import MISSING
from steadytrain.capture.looks.pass_orders import PassOrders
from steadytrain.capture.step.data_wait import DataWait
from steadytrain.capture.step.dataset_numbers import DatasetNumbers
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.step_batches import STEP_BATCHES

if TYPE_CHECKING:
    from steadytrain.capture.step.foreign_optimizers import ForeignOptimizers

FETCHED_MAX = 64


class DataLoaders:
    """Follows all loaders of the process."""

    def __init__(self, run: LiveRun) -> None:
        self.datasets = DatasetNumbers()
        self.orders = PassOrders()
        self._run = run
        self._wait = DataWait()
        self.foreign: ForeignOptimizers | None = None
        """Looks for updates that no ``torch.optim`` optimizer makes."""

    def fetch_begins(self, iterator: Any) -> Any:
        """The script asks ``iterator`` for its next batch. Returns the batch to use instead, or ``MISSING``."""
        run = self._run
        if not run.is_script():
            return MISSING
        batch = MISSING
        if run.rerun is None:
            if self.foreign is not None:
                self.foreign.look()
            self._wait.begins(iterator)
            with run.guard.part("following the data loader"):
                batch = run.observer.fetch_begins(self.datasets.number_of(iterator))
            return batch  # noqa: RET504 (as below)
        with run.guard.part("one more lap"):
            batch = run.rerun.fetch(self.datasets.number_of(iterator))
        return batch  # noqa: RET504 (a guarded part may end without it)

    def samples_drawn(self, iterator: Any, indices: Any) -> None:
        run = self._run
        if run.is_script() and run.rerun is None:
            with run.guard.part("following the samples"):
                run.draws.drawn(iterator, indices)
                self.orders.drawn(iterator, self.datasets.number_of(iterator), indices)

    def fetch_ends(self, iterator: Any, batch: Any) -> Any:
        """``iterator`` returned ``batch``. Returns the batch to use instead, or ``MISSING``."""
        run = self._run
        if not run.is_script():
            return MISSING
        self._wait.ends(iterator)
        if run.rerun is None:
            with run.guard.part("following the samples"):
                self.orders.given(iterator, self.datasets.number_of(iterator), batch)
                samples = run.draws.given(iterator, batch)
                if samples is not None:
                    run.observer.drawn(samples)
        if len(run.seen.fetched) < FETCHED_MAX:
            run.seen.fetched.append((self.datasets.number_of(iterator), batch))
        other = MISSING
        with run.guard.part("recording what was fetched"):
            other = run.observer.fetched(self.datasets.number_of(iterator), batch)
        return other  # noqa: RET504 (as above)

    def step_batch(self, batch: Any) -> Any:
        """A replayed loop of functions is about to call its step function with ``batch``. Returns the one to use."""
        run = self._run
        if not run.is_script():
            return batch
        other = MISSING
        with run.guard.part("following the step function"):
            other = run.observer.fetch_begins(STEP_BATCHES) if run.rerun is None else run.rerun.fetch(STEP_BATCHES)
            if other is MISSING and run.rerun is None:
                other = run.observer.fetched(STEP_BATCHES, batch)
        return batch if other is MISSING else other

    def take_wait_s(self) -> float:
        """Seconds that the training thread waited for its loaders since the last call."""
        return self._wait.take()
