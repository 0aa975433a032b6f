"""Find the run or incident that a user means, by path, by name, or the newest; and list all runs.

Not here: what a run folder holds (``run_folder``), and which of its incidents is the gravest (``grouping.gravest``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.storage.bundle import is_bundle
from steadytrain.storage.run_folder import RUN_FILE, Run, description_started, open_run, read_description
from steadytrain.storage.run_summaries import RunSummary, summary_of

RUNS_DIR_DEFAULT = "steadytrain-runs"


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
    return list(survey(runs_dir).runs)


@dataclass(frozen=True)
class Listing:
    """The runs of a folder, newest first, and one line for each that cannot be read."""

    runs: tuple[RunSummary, ...]
    unreadable: tuple[str, ...]


def survey(runs_dir: Path) -> Listing:
    """The runs under ``runs_dir``, each opened once.

    Raises:
        UsageError: there is no such folder.
    """
    if not runs_dir.is_dir():
        raise UsageError(f"{runs_dir}: no such folder of runs; name another with --runs-dir")
    found, unreadable = [], []
    for entry in _run_folders(runs_dir):
        try:
            found.append(summary_of(entry))
        except UsageError as error:
            unreadable.append(str(error))
    found.sort(key=lambda run: (run.started, run.name), reverse=True)
    return Listing(tuple(found), tuple(unreadable))


def unreadable_runs(runs_dir: Path) -> list[str]:
    """One line for each run that :func:`list_runs` skipped, with the reason."""
    return list(survey(runs_dir).unreadable)


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
            started.append((description_started(read_description(entry)), entry))
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
    # One stat a folder: thousands of them take a second by pathlib.
    with os.scandir(runs_dir) as entries:
        return [runs_dir / entry.name for entry in entries if os.path.isfile(f"{entry.path}/{RUN_FILE}")]
