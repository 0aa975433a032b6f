"""``steadytrain fix``: diagnose, make a patch of the script, and run the patched copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from steadytrain.api.diagnoses import diagnose
from steadytrain.api.targets import Target, incident_or_run_of, needs_torch
from steadytrain.core.errors import UsageError
from steadytrain.core.work_time import work_time
from steadytrain.diagnosis import answer_files
from steadytrain.replay.child_processes import ending_in_order
from steadytrain.replay.moved_files import NOT_MOVED
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT
from steadytrain.trial_runs import fixing, patched_files
from steadytrain.trial_runs.fixing import Fixed

DIAGNOSIS_SHARE = 0.6
"""Share of the budget for a diagnosis, if none is stored. The rest is for the patched script."""


def fix(
    target: Target = None,
    *,
    budget_s: float = 600.0,
    moved: str = NOT_MOVED,
    runs_dir: str | Path = RUNS_DIR_DEFAULT,
    tell: Callable[[str], None] | None = None,
) -> Fixed:
    """Make a patch for the diagnosed cause and run the patched copy from its start. Writes nothing into the script.

    Args:
        target: a bundle, or a run (its most severe incident, or the run itself if it has none); None: the newest run.
        budget_s: time for the diagnosis, if none is stored, and for the patched script.
        moved: ``OLD=NEW``: read the files under OLD from the folder NEW; ``-`` for none.
        runs_dir: folder of run folders.
        tell: a function that gets lines of progress.

    Raises:
        UsageError: there is no such run or incident, or it cannot be launched again.
    """
    if not budget_s > 0:
        raise UsageError(f"--budget {budget_s:g}s: must be a time above 0, such as 90s, 10m or 1h")
    needs_torch("fix needs PyTorch to run the script again")
    source = incident_or_run_of(target, runs_dir)
    report = tell or (lambda line: None)
    began = work_time()
    answer = answer_files.read(source)
    if answer is None:
        answer = diagnose(source, budget_s=DIAGNOSIS_SHARE * budget_s, moved=moved, tell=report)
    left = max(1.0, budget_s - (work_time() - began))
    with ending_in_order():
        return fixing.fix(source, answer, moved=moved, budget_s=left, tell=report, clock=work_time)


def write(fixed: Fixed, *, moved: str = NOT_MOVED) -> Path | None:
    """Write the patch into its file, atomically. Returns the copy of the old file, None if git holds it.

    Raises:
        UsageError: the patch does not remove the symptom, or the script changed since the run.
    """
    if fixed.patch is None or fixed.text is None or fixed.effect != "removed":
        raise UsageError("--write: no patch was seen to remove the symptom, so nothing was written")
    return patched_files.write(fixed.text, fixing.opened(Path(fixed.incident)), moved, fixed.patch.script)
