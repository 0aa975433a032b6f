"""Trials that are run: the schedule in a launched script, what can be changed, and the pool of processes.

``run_trials`` is the one entry point. Importing this package imports no torch: the processes that it starts do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from steadytrain.trials.contract import Outcome, Spec

Tell = Callable[[str], None]


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
    """Run ``specs`` on the bundle or run ``source``; gives each outcome as it is there, finished ones at once.

    Args:
        source: a bundle or a run folder.
        specs: what to run; one that was run before is not run again, its outcome is read.
        workers: how many processes run at once.
        budget_s: no trial is begun after so many seconds; what was not begun is ``not run``.
        tell: gets a line about each trial, for a terminal.
        moved: ``OLD=NEW`` where the script's files lie elsewhere now, ``-`` where not.
        engine: ``local`` or ``ray``.

    Raises:
        UsageError: the script cannot be launched again, or the engine is not there.
    """
    from steadytrain.lab.trials.pool import Pool

    with Pool(source, workers=workers, tell=tell, moved=moved, engine=engine) as pool:
        yield from pool.run(specs, budget_s=budget_s)
