"""Runs trials: launches the script again, applies one change, measures, and drives ``diagnose``.

Planning and judging a trial is ``experiments``; weighing causes is ``diagnosis``.

``run_trials`` is the entry point. Importing this package imports no torch: the processes that it starts do.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steadytrain.experiments.specs import Outcome, Spec

if TYPE_CHECKING:
    from steadytrain.trial_runs.pool import Pool

Tell = Callable[[str], None]
_open: dict[tuple[Path, int, str, str], Pool] = {}


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

    The processes stay where they are for the next call with the same source, until :func:`close_pools`, a call with
    another one, or the end of this process.

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
    yield from _pool(source, workers, moved, engine).run(specs, budget_s=budget_s, tell=tell)


def close_pools() -> None:
    """End the processes that are kept for further trials."""
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
