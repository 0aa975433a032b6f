"""``steadytrain.checklist`` and ``steadytrain.debug``: what of the method was done about a run, and doing the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steadytrain.api.targets import Target, incident_or_run_of, needs_torch, path_of
from steadytrain.core.errors import UsageError
from steadytrain.method.ticks import Checklist, checklist_of
from steadytrain.replay.child_processes import ending_in_order
from steadytrain.replay.moved_files import NOT_MOVED, Moved
from steadytrain.storage.bundle import is_bundle
from steadytrain.storage.run_folder import Run
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

if TYPE_CHECKING:
    from steadytrain.method.script_run import Script
    from steadytrain.method.walk import Walk

RUN_SHARE = 0.5
"""Share of the budget after which a script that ``debug`` runs is interrupted."""

SUFFIX = ".py"


def checklist(target: Target = None, *, runs_dir: str | Path = RUNS_DIR_DEFAULT) -> Checklist:
    """What was done about a run or an incident: reproduction, data tests, telemetry, precision, tuning.

    Reads only what is on disk. Needs no PyTorch.

    Args:
        target: a bundle, or a run (its most severe incident first, then its others); None: the newest run.
        runs_dir: folder of run folders.

    Raises:
        UsageError: there is no such run or incident, or it is damaged.

    Examples:
        >>> checklist = steadytrain.checklist("runs/stopped")
        >>> [tick.name for tick in checklist.ticks]
        ['reproduction', 'data', 'telemetry', 'precision', 'tuning']
    """
    return checklist_of(path_of(target, runs_dir))


def debug(
    target: Target = None,
    arguments: Sequence[str] = (),
    *,
    budget_s: float = 600.0,
    workers: int | None = None,
    data: Sequence[str] = (),
    moved: str = NOT_MOVED,
    runs_dir: str | Path = RUNS_DIR_DEFAULT,
    tell: Callable[[str], None] | None = None,
) -> Walk:
    """Go through the ten steps of the method in order, and run what was not done yet.

    Results are kept beside the run or incident: a second call continues, and nothing is run twice. An interrupt ends
    the walk, which then says what is known so far.

    Args:
        target: a script, which is run under watch first; a bundle; a run (its most severe incident, or the run itself);
            None: the newest run.
        arguments: the script's arguments.
        budget_s: time for all of it, in seconds. A script is interrupted after half of it.
        workers: trials to run at once; by default one per processor, at most 4.
        data: data sets for ``check-data``, by path.
        moved: ``OLD=NEW``: read the files under OLD from the folder NEW; ``-`` for none.
        runs_dir: folder of run folders.
        tell: a function that gets lines of progress.

    Returns:
        ``steps`` are the ten steps, each with what was done, what it showed, what it means, and the next command;
        ``verdict`` is the whole in one line.

    Raises:
        UsageError: there is no such script, run or incident, or an argument is out of bounds.

    Examples:
        >>> walk = steadytrain.debug("runs/stopped", budget_s=60)
        >>> len(walk.steps), walk.steps[0].status
        (10, 'done')
    """
    from steadytrain.api.diagnoses import check_bounds, default_workers
    from steadytrain.method.actions import Request
    from steadytrain.method.walk import walk

    check_bounds(budget_s, workers)
    Moved.parse(moved)
    tell = tell or (lambda line: None)
    script = _script_of(target, tuple(arguments))
    if script is None and arguments:
        raise UsageError(f"{' '.join(arguments)}: only a script takes arguments; give one run or incident")
    path = path_of(target, runs_dir) if script is None else None
    needs_torch("debug needs PyTorch to run the steps again")
    with ending_in_order():
        path, note = _run_of(script, Path(runs_dir), RUN_SHARE * budget_s, tell) if script is not None else (path, "")
        assert path is not None
        trials_at_once = workers or default_workers(incident_or_run_of(path, runs_dir))
        request = Request(path, budget_s, trials_at_once, moved, script, tuple(data))
        return walk(request, tell=tell, notes=(note,) if note else ())


def _run_of(script: Script, runs_dir: Path, wait_s: float, tell: Callable[[str], None]) -> tuple[Path, str]:
    from steadytrain.method.script_run import watched_run

    tell(f"running {script.path} under watch (at most {wait_s:.0f} s)")
    return watched_run(script, runs_dir, wait_s=wait_s)


def _script_of(target: Target, arguments: tuple[str, ...]) -> Script | None:
    """The script that ``target`` is; None if it is a run or an incident.

    Raises:
        UsageError: it ends as a script does and is not there, or is not Python.
    """
    from steadytrain.capture.hooks.launch import script_target
    from steadytrain.method.script_run import Script

    if target is None or isinstance(target, Run):
        return None
    path = Path(target)
    if path.suffix != SUFFIX and (not path.is_file() or is_bundle(path)):
        return None
    script_target(str(path), arguments)
    return Script(path, arguments)
