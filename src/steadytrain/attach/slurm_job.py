"""The SLURM job that this process is part of, as its environment describes it, and the run that a restart goes on with.

Nothing here asks SLURM: a step of a run would wait for it.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadytrain.attach.restarted_run import continued
from steadytrain.core.errors import UsageError
from steadytrain.storage.run_folder import RUN_FILE, read_description

KEY = "slurm"
TEXT_MAX = 200
RUNS_MAX = 128
"""The runs changed last among which an earlier run of the job is searched."""

_TEXTS = {
    "job": "SLURM_JOB_ID",
    "array_job": "SLURM_ARRAY_JOB_ID",
    "array_index": "SLURM_ARRAY_TASK_ID",
    "step": "SLURM_STEP_ID",
    "task": "SLURM_PROCID",
    "node": "SLURMD_NODENAME",
    "nodes": "SLURM_JOB_NODELIST",
    "partition": "SLURM_JOB_PARTITION",
}
_NUMBERS = {"tasks": "SLURM_NTASKS", "restart": "SLURM_RESTART_COUNT", "ends_at": "SLURM_JOB_END_TIME"}


def job_here(environment: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """The job as facts of a run, None outside of one. ``restart`` counts how often SLURM has started the job again.

    ``ends_at`` is its time limit in seconds since the epoch, where SLURM says it.
    """
    if not environment.get("SLURM_JOB_ID", "").isdecimal():
        return None
    texts = {name: environment[variable][:TEXT_MAX] for name, variable in _TEXTS.items() if environment.get(variable)}
    numbers = {
        name: int(environment[variable])
        for name, variable in _NUMBERS.items()
        if environment.get(variable, "").isdecimal() and len(environment[variable]) <= TEXT_MAX
    }
    return {"restart": 0, **texts, **numbers}


def shared_name(stem: str) -> str | None:
    """The name of a run that the tasks of a job step share; None if each task is a run of its own.

    They share one if the environment gives each its rank: then the ranks have folders of their own in it.
    """
    job = job_here()
    if job is None or "step" not in job or job.get("tasks", 1) < 2 or not os.environ.get("RANK", "").isdecimal():
        return None
    return f"{stem}-job{job['job']}.{job['step']}" + (f"-restart{job['restart']}" if job["restart"] else "")


def given_name(name: str, job: Mapping[str, Any] | None, *, shared: bool) -> str:
    """The name that the user gave, with what tells starts and tasks of the job apart: its folder may be there already.

    ``shared``: the tasks of the job step are ranks of one run.
    """
    if job is None:
        return name
    task = f"-task{job['task']}" if not shared and job.get("tasks", 1) > 1 and job.get("task", "0") != "0" else ""
    return name + task + (f"-restart{job['restart']}" if job["restart"] else "")


def earlier_run(job: Mapping[str, Any] | None, command: list[str], runs_dir: Path) -> dict[str, Any] | None:
    """What a job that SLURM has started again continues: its run before, from the last checkpoint; None for nothing.

    One line says which, or why not. It needs a checkpoint on record, because otherwise the script may begin anew.
    """
    if job is None or not job["restart"]:
        return None
    path = _newest(job, command, runs_dir)
    if path is None:
        return None
    return continued(path, f"SLURM has started job {job['job']} again (restart {job['restart']})", runs_dir)


def _newest(job: Mapping[str, Any], command: list[str], runs_dir: Path) -> Path | None:
    """The run of the same task and command in an earlier start of the job."""
    found: list[tuple[int, str, Path]] = []
    try:
        with os.scandir(runs_dir) as entries:
            folders = [(entry.stat().st_mtime, entry.path) for entry in entries if entry.is_dir()]
    except OSError:
        return None
    for _, folder in heapq.nlargest(RUNS_MAX, folders):
        if not os.path.isfile(os.path.join(folder, RUN_FILE)):
            continue
        try:
            description = read_description(Path(folder))
        except UsageError:
            continue
        earlier = description.get(KEY)
        if not isinstance(earlier, dict) or description.get("argv") != command:
            continue
        same = all(earlier.get(name) == job.get(name) for name in ("job", "array_index", "task"))
        if same and isinstance(earlier.get("restart"), int) and earlier["restart"] < job["restart"]:
            found.append((earlier["restart"], str(description.get("started")), Path(folder)))
    return max(found)[2] if found else None
