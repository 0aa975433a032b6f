"""Find the run or incident that a user means, by path, by name, or the newest; and list all runs.

Not here: what a run folder holds (``run_folder``), and which of its incidents is the gravest (``grouping.gravest``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.model import Severity, worst
from steadytrain.storage.bundle import is_bundle
from steadytrain.storage.run_folder import RUN_FILE, Run, open_run, read_description

RUNS_DIR_DEFAULT = "steadytrain-runs"


@dataclass(frozen=True)
class RunSummary:
    """One line of ``steadytrain runs``, read from the index and ``run.json`` only."""

    name: str
    path: Path
    started: str
    command: str
    ended: str | None
    steps: int
    worst: Severity | None
    incidents: int


def load_run(path: str | Path) -> Run:
    """Open the run in the folder ``path``, or the run of that name under ``steadytrain-runs``. Needs no PyTorch.

    Raises:
        UsageError: the run does not exist or cannot be read.

    Example:
        >>> steadytrain.load_run("runs/stopped")
        <Run 'stopped': steps 4, ended stopped, symptoms nonfinite-gradient, nonfinite-loss, incidents 1>
    """
    return open_run(find(str(path), Path(RUNS_DIR_DEFAULT)))


def list_runs(runs_dir: Path) -> list[RunSummary]:
    """The runs under ``runs_dir``, newest first. Skips folders that are not runs."""
    if not runs_dir.is_dir():
        raise UsageError(f"{runs_dir}: no such folder of runs; name another with --runs-dir")
    found = []
    for entry in _run_folders(runs_dir):
        try:
            run = open_run(entry)
            summary = RunSummary(
                name=run.name,
                path=entry,
                started=_started(run.description),
                command=run.command,
                ended=run.ended,
                steps=run.steps,
                worst=worst([symptom.severity for symptom in run.symptoms]),
                incidents=len(run.incidents),
            )
        except UsageError:
            continue
        found.append(summary)
    return sorted(found, key=lambda run: (run.started, run.name), reverse=True)


def unreadable_runs(runs_dir: Path) -> list[str]:
    """One line for each run that :func:`list_runs` skipped, with the reason."""
    reasons = []
    for entry in _run_folders(runs_dir):
        try:
            _ = open_run(entry).steps
        except UsageError as error:
            reasons.append(str(error))
    return reasons


def find(target: str | None, runs_dir: Path) -> Path:
    """The run folder or bundle that ``target`` names: a path, or the name of a run under ``runs_dir``.

    None means the run that started last.
    """
    if target is None:
        return newest(runs_dir)
    try:
        for path in (Path(target), runs_dir / target):
            if (path / RUN_FILE).is_file() or is_bundle(path):
                return path
        exists = Path(target).exists()
    except (OSError, ValueError) as error:
        raise UsageError(f"{target[:200]!r}: not a path that can be read ({error})") from None
    if exists:
        raise UsageError(f"{target}: neither a run folder (no {RUN_FILE}) nor an incident bundle (no manifest.json)")
    raise UsageError(f"{target}: no such run or incident, here or under {runs_dir}; `steadytrain runs` lists the runs")


def newest(runs_dir: Path) -> Path:
    """The run that started last."""
    started = []
    for entry in _run_folders(runs_dir) if runs_dir.is_dir() else []:
        try:
            started.append((_started(read_description(entry)), entry))
        except UsageError:
            continue
    if not started:
        raise UsageError(f"{runs_dir}: no runs here yet; record one with `steadytrain run SCRIPT`")
    return max(started)[1]


def run_around(bundle: Path) -> Run | None:
    """The run whose folder contains a bundle, None if there is none or it cannot be read."""
    run = bundle.absolute().parent.parent
    try:
        return open_run(run) if (run / RUN_FILE).is_file() else None
    except UsageError:
        return None


def _run_folders(runs_dir: Path) -> list[Path]:
    return [entry for entry in runs_dir.iterdir() if (entry / RUN_FILE).is_file()]


def _started(description: dict[str, Any]) -> str:
    return str(description.get("started") or "")
