"""``steadytrain.diagnose``: why a run went wrong, by trials on a replay."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from steadytrain.api.targets import Target, incident_or_run_of, needs_torch, path_of
from steadytrain.core.errors import UsageError
from steadytrain.diagnosis.answer import Diagnosis
from steadytrain.replay.child_processes import ending_in_order
from steadytrain.replay.loop_command import parse_loop, replacing_the_command
from steadytrain.replay.moved_files import NOT_MOVED
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT
from steadytrain.trial_runs import diagnose as diagnosing

WORKERS_MAX = 256
WORKERS_DEFAULT_MAX = 4


def diagnose(
    target: Target = None,
    *,
    budget_s: float = 600.0,
    symptom: str | tuple[str | None, int] | None = None,
    workers: int | None = None,
    engine: Literal["local", "ray", "slurm"] = "local",
    moved: str = NOT_MOVED,
    runs_dir: str | Path = RUNS_DIR_DEFAULT,
    step_fn: Callable[..., object] | str | None = None,
    build: Callable[..., object] | str | None = None,
    tell: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Find out by trials on a replay, each with one change and a control, why a run went wrong.

    Finished trials and the diagnosis are saved with the incident: an interrupted diagnosis continues where it stopped.

    Args:
        target: a bundle, or a run (its most severe incident, or the run itself if it has none); None: the newest run.
        budget_s: no trial starts after this many seconds.
        symptom: the symptom to explain, or it and the step at which it began; by default the first of the most severe.
            It may be one that you see and no detector raised, such as ``no-learning``: trials then run the script from
            its start.
        workers: trials to run at once; by default as many as the processors hold with the threads of the run, at most
            4.
        engine: ``local``, ``ray`` or ``slurm``.
        moved: ``OLD=NEW``: read the files under OLD from the folder NEW; ``-`` for none.
        runs_dir: folder of run folders.
        step_fn: a function ``f(model, batch)`` of a module that returns the loss, or its ``MODULE:NAME``; replaces a
            script that cannot be launched.
        build: another one, with ``step_fn``: returns ``(model, optimizer)`` or ``(model, optimizer, update)``.
        tell: a function that gets lines of progress.

    Returns:
        ``verdict`` names the confirmed or likely cause, or is ``unknown``; ``diagnoses`` are all causes considered, the
        most probable first, each with its confidence (0 to 1), evidence and fixes.

    Raises:
        UsageError: there is no such run or incident, or an argument is out of bounds.

    Examples:
        >>> diagnosis = steadytrain.diagnose("runs/stopped", budget_s=60)
        >>> diagnosis.verdict
        'singular-operation'
        >>> diagnosis.diagnoses[0].interventions[0].name
        'safe-operation'
    """
    check_bounds(budget_s, workers)
    name, onset = symptom if isinstance(symptom, tuple) else (symptom, None)
    source = _source_of(target, runs_dir, name)
    loop = parse_loop(step_fn, build)
    needs_torch("diagnose needs PyTorch to run the steps again")
    request = diagnosing.Request(
        source, budget_s, workers or default_workers(source), engine, moved, symptom=name, onset=onset
    )
    with ending_in_order(), replacing_the_command(loop):
        return diagnosing.diagnose(request, tell=tell or (lambda line: None))


def _source_of(target: Target, runs_dir: str | Path, symptom: str | None) -> Path:
    """The bundle or run to diagnose. If a run is asked about a ``symptom`` that its incident is not about, the run."""
    path = path_of(target, runs_dir)
    source = incident_or_run_of(path, runs_dir)
    if symptom is None or source == path:
        return source
    about = {one.name for one in open_bundle(source).incident.symptoms if one.severity != "note"}
    return source if symptom in about else path


def check_bounds(budget_s: float, workers: int | None) -> None:
    """Check the time in seconds and the number of trials at once.

    Raises:
        UsageError: one is out of bounds; the text names the option.
    """
    if not budget_s > 0:
        raise UsageError(f"--budget {budget_s:g}s: must be a time above 0, such as 90s, 10m or 1h")
    if workers is not None and not 1 <= workers <= WORKERS_MAX:
        raise UsageError(f"--workers {workers}: between 1 and {WORKERS_MAX}")


def default_workers(source: Path) -> int:
    """The default number of trials at once for a bundle or run: as many as the processors hold, each with the threads
    that the run had, at most 4."""
    recorded = open_bundle(source).environment if is_bundle(source) else open_run(source).description
    threads = recorded.get("torch_threads")
    each = threads if isinstance(threads, int) and threads > 0 else 1
    return max(1, min(WORKERS_DEFAULT_MAX, (os.cpu_count() or 1) // each))
