"""Runs trials: launches the script again, applies one change, measures, and drives ``diagnose``.

``experiments`` plans and judges trials; ``diagnosis`` weighs causes.

``run_trials`` is the entry point. Importing this package does not import torch: the launched processes do.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from steadytrain.core.errors import UsageError
from steadytrain.experiments.specs import Outcome, Spec

if TYPE_CHECKING:
    from steadytrain.trial_runs.pool import Pool

Tell = Callable[[str], None]
_open: dict[tuple[Path, int, str, str], Pool] = {}


@runtime_checkable
class Counting(Protocol):
    """A function for lines of progress that also counts: ``done`` of the ``of`` trials of one call are over."""

    def __call__(self, line: str) -> None: ...

    def counted(self, done: int, of: int) -> None: ...


def run_trials(
    source: Path,
    specs: Sequence[Spec],
    *,
    workers: int = 1,
    budget_s: float | None = None,
    tell: Tell | None = None,
    moved: str = "-",
    engine: str = "local",
) -> Iterator[Outcome]:
    """Runs ``specs`` on the bundle or run ``source``. Yields each outcome when it is available, finished ones at once.

    The processes wait for the next call with the same source, until :func:`close_pools`, a call with other arguments,
    or
    the end of this process.

    Args:
        source: a bundle or a run folder.
        specs: the trials to run. A finished one is not repeated; its outcome is read from disk.
        workers: the number of processes that run at once.
        budget_s: time in seconds after which no trial starts. The others are reported as not run.
        tell: gets one line for each trial, for the terminal; a :class:`Counting` one also how many are done.
        moved: ``OLD=NEW`` if the script's files moved, else ``-``.
        engine: ``local``, ``ray`` or ``slurm``.

    Raises:
        UsageError: the script cannot be launched again, or the engine is not available.
    """
    count = tell.counted if isinstance(tell, Counting) else _nothing
    of = len(dict.fromkeys(specs))
    count(0, of)
    outcomes = _pool(source, workers, moved, engine).run(specs, budget_s=budget_s, tell=tell)
    for done, outcome in enumerate(outcomes, 1):
        count(done, of)
        yield outcome


def prepare(source: Path, *, workers: int, moved: str, engine: str) -> None:
    """Starts the process that trials of these arguments come from in the background, where a core is free for it. What
    prevents them is left to :func:`run_trials` to raise."""
    if len(os.sched_getaffinity(0)) < 2:
        return
    with suppress(UsageError):
        threading.Thread(target=_pool(source, workers, moved, engine).warm_up, daemon=True).start()


def _nothing(done: int, of: int) -> None:
    """Count for nobody."""


def close_pools() -> None:
    """Ends the processes that wait for further trials."""
    for pool in _open.values():
        pool.close()
    _open.clear()


def _pool(source: Path, workers: int, moved: str, engine: str) -> Pool:
    from steadytrain.trial_runs.pool import Pool

    key = (source.absolute(), workers, moved, engine)
    if key not in _open:
        close_pools()
        _open[key] = Pool(source, workers=workers, moved=moved, engine=engine)
    return _open[key]


atexit.register(close_pools)
