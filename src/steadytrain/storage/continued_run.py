"""Parse ``RUN`` or ``RUN@STEP``: the run that a training continues, and its last step that counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_search import find


def which_run(text: str, runs_dir: Path) -> dict[str, Any]:
    """Resolve ``RUN`` or ``RUN@STEP`` to the run's name, its folder and the last step that counts.

    Without a step, this is the last step whose update was applied.

    Raises:
        UsageError: the run or step does not exist.
    """
    target, mark, number = text.rpartition("@")
    if not mark or not number.isdecimal():
        target, number = text, ""
    path = find(target, runs_dir).resolve()
    run = open_run(path)
    window = run.scalars() if "main" in run.streams() else None
    applied = window.steps[~window.refused].tolist() if window is not None else []
    if not applied:
        raise UsageError(f"{target}: that run has no recorded update to continue from")
    step = int(number) if number else applied[-1]
    if not applied[0] <= step <= applied[-1]:
        raise UsageError(f"{text}: that run has the steps {applied[0]} to {applied[-1]}")
    return {"run": run.name, "run_dir": str(path), "step": step}
