"""The run that a process continues that was started again: by SLURM, or by torchrun after a rank had failed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steadytrain.attach.messages import tell
from steadytrain.core.errors import UsageError
from steadytrain.storage.continued_run import which_run
from steadytrain.storage.rank_differences import other_number
from steadytrain.storage.rank_endings import first_end_of
from steadytrain.storage.ranks_of_run import launched_rank, launched_ranks
from steadytrain.storage.run_folder import RUN_FILE, open_run


def elastic_restarts(environment: Mapping[str, str] = os.environ) -> int:
    """How often torchrun has started its ranks again; 0 for the first time, and without torchrun."""
    count = environment.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if "LOCAL_RANK" in environment and count.isdecimal() and len(count) < 6 else 0


def name_of_try(name: str, restarts: int) -> str:
    """The name of a run that torchrun has started so often: each try has a folder of its own."""
    return f"{name}-restart{restarts}" if restarts else name


def earlier_try(name: str, runs_dir: Path) -> dict[str, Any] | None:
    """What this try of the run ``name`` continues: the try before, from its last checkpoint; None for nothing."""
    restarts = elastic_restarts()
    path = runs_dir / name_of_try(name, restarts - 1)
    if not restarts or not os.path.isfile(path / RUN_FILE):
        return None
    first = first_end_of(path)
    why = f", because {first.cause}" if first is not None else ""
    return continued(path, f"torchrun has started the ranks again (restart {restarts}){why}", runs_dir)


def continued(path: Path, again: str, runs_dir: Path) -> dict[str, Any] | None:
    """The last checkpoint of the run in ``path`` as what this run continues. One line says which, or why not.

    It needs a checkpoint on record, because otherwise the script may begin anew. ``again`` begins the line.
    """
    say = tell if launched_rank() == 0 else _silent
    step = _saved_step(path)
    if step is None:
        say(
            f"note: {again}; its run {path.name} has no checkpoint on record, so this run counts its steps from 1 "
            f"(--continues {path.name}@STEP joins them)"
        )
        return None
    try:
        found = which_run(f"{path}@{step}", runs_dir)
    except UsageError as error:
        say(f"note: {again}, but its run cannot be continued: {error}")
        return None
    say(
        f"note: {again}: this run continues {path.name} from its last checkpoint, step {step} (--continues RUN@STEP "
        "names another, --continues none starts anew)"
    )
    return found


def report_other_number(continues: Mapping[str, Any] | None) -> None:
    """One line if a launcher started another number of ranks than the run had that this one continues."""
    if launched_rank() == 0 and "WORLD_SIZE" in os.environ and (line := other_number(continues, launched_ranks())):
        tell(f"note: {line}")


def _silent(_: str) -> None:
    """The first rank reports for all."""


def _saved_step(path: Path) -> int | None:
    """The step of the newest checkpoint of a run that is still there."""
    try:
        entries = open_run(path).facts.get("saved")
    except UsageError:
        return None
    steps = [
        entry["step"]
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("step"), int) and _exists(entry.get("files"))
    ]
    return max(steps, default=None)


def _exists(files: Any) -> bool:
    return isinstance(files, dict) and any(os.path.exists(name) for name in files)
