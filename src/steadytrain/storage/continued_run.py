"""Which run a training goes on from, and after which of its steps: ``RUN`` or ``RUN@STEP``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.run_search import find


def which_run(text: str, runs_dir: Path) -> dict[str, Any]:
    """``RUN`` or ``RUN@STEP`` as the folder of the run and the last of its steps that counts.

    Without a step it is the last one whose update was applied.

    Raises:
        UsageError: there is no such run or step.
    """
    target, mark, number = text.rpartition("@")
    if not mark or not number.isdecimal():
        target, number = text, ""
    path = find(target, runs_dir).resolve()
    run = open_run(path)
    window = run.scalars() if "main" in run.streams() else None
    applied = window.steps[~window.refused].tolist() if window is not None else []
    if not applied:
        raise UsageError(f"{target}: no update of that run is on record, so there is nothing to go on from")
    step = int(number) if number else applied[-1]
    if not applied[0] <= step <= applied[-1]:
        raise UsageError(f"{text}: that run has the steps {applied[0]} to {applied[-1]}")
    return {"run": run.name, "run_dir": str(path), "step": step}
