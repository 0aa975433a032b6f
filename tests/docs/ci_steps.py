"""Runs the jobs of a CI file as GitHub Actions and GitLab CI do: each step in a shell of its own that ends at its first
failure, and after a failed step only those that always run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

FROM_INDEX = re.compile(r'^pip install torch "\$STEADYTRAIN"$', re.MULTILINE)
FROM_HERE = 'python -c "import steadytrain, torch"'
"""Instead of the install from an address: the package of this tree, which is in the environment of the tests."""

GITHUB = {"CI": "true", "GITHUB_ACTIONS": "true"}
GITLAB = {"CI": "true", "GITLAB_CI": "true"}

Run = Callable[[str, Mapping[str, str]], int]
"""Runs a script of bash with these variables, and returns its status."""


@dataclass(frozen=True)
class Step:
    script: str
    always: bool = False


@dataclass(frozen=True)
class Job:
    """``kept`` are the files that the job uploads, ``variables`` those of the CI system."""

    name: str
    steps: tuple[Step, ...]
    kept: tuple[str, ...]
    variables: Mapping[str, str]


def jobs(text: str) -> tuple[Job, ...]:
    """The jobs of a CI file. A list of steps alone is one job."""
    data = yaml.safe_load(text)
    if isinstance(data, list):
        return (_github("steps", data),)
    if "jobs" in data:
        return tuple(_github(name, job["steps"]) for name, job in data["jobs"].items())
    return tuple(_gitlab(name, job) for name, job in data.items() if isinstance(job, dict) and "script" in job)


def run_job(job: Job, run: Run) -> int:
    """The status of the job: that of its first failed step."""
    status = 0
    for step in job.steps:
        if status == 0 or step.always:
            ended = run(FROM_INDEX.sub(FROM_HERE, step.script), job.variables)
            status = status or ended
    return status


def _github(name: str, steps: Iterable[Mapping[str, Any]]) -> Job:
    scripts, kept = [], list[str]()
    for step in steps:
        if "run" in step:
            scripts.append(Step(step["run"], step.get("if") == "always()"))
        elif "upload-artifact" in step["uses"]:
            kept += step["with"]["path"].split()
    return Job(name, tuple(scripts), tuple(kept), GITHUB)


def _gitlab(name: str, job: Mapping[str, Any]) -> Job:
    artifacts = job.get("artifacts", {})
    kept = [*artifacts.get("paths", ()), *artifacts.get("reports", {}).values()]
    return Job(name, (Step("\n".join(job["script"])),), tuple(kept), GITLAB)
