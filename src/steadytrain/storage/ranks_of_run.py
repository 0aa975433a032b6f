"""The ranks of one run: each has a folder of its own, and one of them the fault."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own
from steadytrain.statistics.rank_rows import ranks_named
from steadytrain.storage.run_folder import RANKS_FOLDER, RUN_FILE, Run, part_of_run, read_description
from steadytrain.storage.staged_bundle import step_and_name

SHARE_FOLDER = "give all nodes one folder that they share (--runs-dir)"

UNSEEN_RANKS = "unseen_ranks"
"""The fact of a run that lists the ranks whose records the first rank cannot see; absent if there are none."""

FIRST_BAD_RANK = "first_bad_rank"
"""The fact of a run that names the rank whose loss was not finite in the step that ended it."""

BAD_RANKS = "bad_ranks"
"""The fact of a run with the rank where each bad step began, by step as text: also of steps that did not end it."""

BAD_RANKS_MAX = 64

LAUNCHER = "launcher"
"""The entry of ``run.json`` with the launcher's variables; absent without a launcher."""

LAUNCHER_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "OMP_NUM_THREADS", "TORCHELASTIC_RUN_ID"),
)


def launcher_facts() -> dict[str, Any]:
    """What a launcher such as torchrun told this process, for ``run.json``; empty without one."""
    if "RANK" not in os.environ:
        return {}
    return {LAUNCHER: {name: os.environ[name] for name in LAUNCHER_VARIABLES if name in os.environ}}


def launched_rank() -> int:
    """The rank that the launcher gave this process; 0 without a launcher."""
    value = os.environ.get("RANK", "0")
    return int(value) if value.isdigit() else 0


def launched_ranks() -> int:
    """The number of processes that the launcher started for this run; 1 without a launcher."""
    value = os.environ.get("WORLD_SIZE", "1")
    return int(value) if value.isdigit() else 1


def rank_folder(run_dir: Path, rank: int) -> Path:
    """The folder of a rank: the first one has the run folder itself."""
    return run_dir / RANKS_FOLDER / f"{rank:04d}" if rank else run_dir


def rank_name(folder: Path) -> str:
    """How the rank with this folder is called: ``rank 1``; the name of the folder of another process."""
    number = folder.name.removeprefix("rank-")
    return f"rank {int(number)}" if number.isdigit() else folder.name


def is_first_recorded(run_dir: Path) -> bool:
    """Whether the first rank records where this process can see it. It then reports for all ranks."""
    if not os.path.isfile(run_dir / RUN_FILE):  # unlike Path's, it does not raise
        return False
    try:
        return bool(read_description(run_dir).get("rank", 0) == 0)
    except UsageError:
        return True


def recorded_ranks(run_dir: Path) -> list[int]:
    """The ranks beside the first one that have records in this run folder."""
    try:
        with os.scandir(run_dir / RANKS_FOLDER) as entries:
            names = [entry.name for entry in entries if entry.name.isdecimal()]
    except own(OSError):
        return []
    return sorted(int(name) for name in names)


def speaks_here(run_dir: Path, rank: int) -> bool:
    """Whether a rank other than the first reports: the first is not recorded where this process can see it, and no
    lower rank is."""
    return not is_first_recorded(run_dir) and rank == min([rank, *recorded_ranks(run_dir)])


def part_sentence(run_dir: Path, world: int) -> str:
    """That only some of ``world`` ranks recorded in this folder, and not the first; "" if that is not so."""
    here = [] if os.path.isfile(run_dir / RUN_FILE) else recorded_ranks(run_dir)
    if not here or world < 2:
        return ""
    return f"this is a part of the run, {ranks_named(here)} of {world}: rank 0 does not record here; {SHARE_FOLDER}"


def part_shown(run: Run) -> str:
    """The same for a run that is the first rank of such a folder."""
    world, ranks = run.description.get("world_size"), run.path.absolute().parent
    if ranks.name != RANKS_FOLDER or not isinstance(world, int):
        return ""
    return part_sentence(ranks.parent, world) if part_of_run(ranks.parent) is not None else ""


def faulty_first(run: Run, incidents: Sequence[Path]) -> list[Path]:
    """``incidents`` of all ranks, with those of the rank at fault before the others."""
    last, by_step = run.facts.get(FIRST_BAD_RANK), run.facts.get(BAD_RANKS)
    by_step = by_step if isinstance(by_step, dict) else {}

    def is_of_another(path: Path) -> bool:
        number = by_step.get(str(step_and_name(path)[0]), last)
        return not isinstance(number, int) or path.parent.parent != rank_folder(run.path, number)

    return sorted(incidents, key=is_of_another)
