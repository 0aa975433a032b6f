"""Find the run or incident that a user means, by path, by name, or the newest; and list all runs.

Not here: what a run folder holds (``run_folder``), and which of its incidents is the gravest (``grouping.gravest``).
"""

from __future__ import annotations

import difflib
import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import NEAR_MAX, NEARNESS_MIN
from steadytrain.storage.begun_runs import Begun, begun_runs, scan
from steadytrain.storage.bundle import is_bundle
from steadytrain.storage.run_folder import RUN_FILE, Run, description_started, open_run, part_of_run, read_description
from steadytrain.storage.run_summaries import RunSummary, summary_of
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER

RUNS_DIR_DEFAULT = "steadytrain-runs"
LAST = "@last"
NAMES_MAX = 8


def load_run(path: str | Path) -> Run:
    """Open the run in the folder ``path``, or the run of that name under ``steadytrain-runs``. Needs no PyTorch.

    Raises:
        UsageError: the run does not exist or cannot be read.

    Examples:
        >>> steadytrain.load_run("runs/stopped")
        <Run 'stopped': steps 4, ended stopped, symptoms nonfinite-gradient, nonfinite-loss, incidents 1>
    """
    return open_run(find(str(path), Path(RUNS_DIR_DEFAULT)))


def list_runs(runs_dir: Path) -> list[RunSummary]:
    """The runs under ``runs_dir``, newest first. Skips folders that are not runs."""
    return list(survey(runs_dir).runs)


@dataclass(frozen=True)
class Listing:
    """The runs of a folder, newest first, one line for each that cannot be read, and those without a step."""

    runs: tuple[RunSummary, ...]
    unreadable: tuple[str, ...]
    begun: tuple[Begun, ...]


def survey(runs_dir: Path) -> Listing:
    """The runs under ``runs_dir``, each opened once.

    Raises:
        UsageError: there is no such folder.
    """
    if not runs_dir.is_dir():
        raise _no_runs(runs_dir)
    there, found, unreadable = scan(runs_dir), [], []
    for entry in there.runs:
        try:
            found.append(summary_of(entry))
        except UsageError as error:
            unreadable.append(str(error))
        except OSError as error:
            unreadable.append(f"{entry}: cannot be read ({error.strerror})")
    found.sort(key=lambda run: (run.started, run.name), reverse=True)
    return Listing(tuple(found), tuple(unreadable), there.begun)


def unreadable_runs(runs_dir: Path) -> list[str]:
    """One line for each run that :func:`list_runs` skipped, with the reason."""
    return list(survey(runs_dir).unreadable)


def find(target: str | None, runs_dir: Path) -> Path:
    """The run folder or bundle that ``target`` names.

    A path; the name of a run under ``runs_dir`` (that of its folder, or the one it was given); ``RUN/step-119``, an
    incident of such a run; ``@last`` or None, the run that started last; ``@last/step-119``.
    """
    if target is None or target == LAST:
        return newest(runs_dir)
    try:
        for path in (Path(target), runs_dir / target):
            if (path / RUN_FILE).is_file() or is_bundle(path):
                return path
        for path in (Path(target), runs_dir / target):
            if (part := part_of_run(path)) is not None:
                return part
        short = _by_name(target, runs_dir)
        if short is not None:
            return short
        exists = Path(target).exists()
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        raise UsageError(f"{target[:200]!r}: not a path that can be read ({error})") from None
    begun = {one.path.name: one for one in begun_runs(runs_dir)}
    if (one := begun.get(Path(target).name)) is not None:
        raise UsageError(f"{one.sentence}: {one.advice}")
    if exists:
        raise UsageError(f"{target}: neither a run folder (no {RUN_FILE}) nor an incident bundle (no manifest.json)")
    raise UsageError(
        f"{target}: no such run or incident, here or under {runs_dir}; {_near(target, runs_dir)}`steadytrain runs` "
        "lists the runs"
    )


def run_of(path: Path) -> Path:
    """The run folder that holds the incident at ``path``; ``path`` itself where it is a run or lies elsewhere."""
    return path.parent.parent if path.parent.name == INCIDENTS_FOLDER else path


def short_name(path: Path, runs_dir: Path = Path(RUNS_DIR_DEFAULT)) -> str:
    """The shortest name that :func:`find` takes for a run or incident: from the folder of this process, quoted for a
    shell.
    """
    parent = run_of(path)
    name = parent.name if parent == path else f"{parent.name}/{path.name}"
    with suppress(OSError, UsageError):
        is_there = (runs_dir / parent.name / RUN_FILE).is_file()
        if is_there and not name.startswith(("@", "-")) and os.path.samefile(find(name, runs_dir), path):
            return shlex.quote(name)
    return shlex.quote(str(path))


def _by_name(target: str, runs_dir: Path) -> Path | None:
    """The run or incident of a short name."""
    name, _, incident = target.partition("/")
    if "/" in incident or not runs_dir.is_dir():
        return None
    if name == LAST:
        run: Path | None = newest(runs_dir)
    else:
        run = runs_dir / name if (runs_dir / name / RUN_FILE).is_file() else _given_name(name, runs_dir)
    if run is None or not incident:
        return run
    bundle = run / INCIDENTS_FOLDER / incident
    if is_bundle(bundle):
        return bundle
    there = sorted(path.name for path in (run / INCIDENTS_FOLDER).glob("*") if is_bundle(path))[:NAMES_MAX]
    raise UsageError(f"{target}: the run {name} has no such incident; it has {', '.join(there) or 'none'}")


def _given_name(name: str, runs_dir: Path) -> Path | None:
    """The folder of the run that was given a name; folders can be renamed."""
    found = []
    for entry in scan(runs_dir).runs:
        with suppress(UsageError):
            if read_description(entry).get("name") == name:
                found.append(entry)
    if len(found) > 1:
        folders = ", ".join(sorted(entry.name for entry in found)[:NAMES_MAX])
        raise UsageError(f"{name}: {len(found)} runs have this name; name one by its folder: {folders}")
    return found[0] if found else None


def _near(target: str, runs_dir: Path) -> str:
    """Names of runs that look alike, as the start of a clause."""
    names = [entry.name for entry in scan(runs_dir).runs] if runs_dir.is_dir() else []
    near = difflib.get_close_matches(target, names, n=NEAR_MAX, cutoff=NEARNESS_MIN)
    return f"did you mean {' or '.join(near)}? " if near else ""


def newest(runs_dir: Path) -> Path:
    """The run that started last."""
    return newest_and_begun(runs_dir)[0]


def newest_and_begun(runs_dir: Path) -> tuple[Path, tuple[Begun, ...]]:
    """The run that started last, and the runs that have no step yet, in one look into the folder."""
    if not runs_dir.is_dir():
        raise _no_runs(runs_dir)
    there, started = scan(runs_dir), []
    for entry in there.runs:
        try:
            started.append((description_started(read_description(entry)), entry))
        except UsageError:
            continue
    if not started:
        raise _no_runs(runs_dir)
    return max(started)[1], there.begun


def _no_runs(runs_dir: Path) -> UsageError:
    """Why nothing can be shown: no folder, or only runs that ended before their first step."""
    if not runs_dir.is_dir():
        next_step = "record one with `steadytrain run SCRIPT`, or name another with --runs-dir"
        return UsageError(f"{runs_dir}: no such folder of runs; {next_step}")
    if begun := begun_runs(runs_dir):
        return UsageError(f"{runs_dir}: no run with a step here; {begun[0].sentence}: {begun[0].advice}")
    return UsageError(f"{runs_dir}: no runs here yet; record one with `steadytrain run SCRIPT`")


def run_around(bundle: Path) -> Run | None:
    """The run whose folder contains a bundle, None if there is none or it cannot be read."""
    run = bundle.absolute().parent.parent
    try:
        return open_run(run) if (run / RUN_FILE).is_file() else None
    except UsageError:
        return None


def whole_run(source: Path) -> Run | None:
    """The run of a bundle (that of all ranks), or the run in a folder; None if the bundle lies elsewhere or the run is
    damaged."""
    run = run_around(source) if is_bundle(source) else open_run(source.absolute())
    return run_around(run.path) if run is not None and run.path.parent.name == "ranks" else run
