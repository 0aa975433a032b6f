"""What differs between the processes that train one run, and from the run that it continues: versions, clocks, number.

Read from what the ranks recorded; nothing here judges whether it does harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.errors import UsageError
from steadytrain.core.own_errors import own
from steadytrain.statistics.rank_rows import ranks_named
from steadytrain.storage.rank_endings import first_stream
from steadytrain.storage.ranks_of_run import rank_folder, recorded_ranks
from steadytrain.storage.run_folder import read_description
from steadytrain.storage.segments import newest_step, read_scalars

RANKS_MAX = 64
VERSIONS_MAX = 4
CLOCK_S_MIN = 5.0
"""Ranks that step together end a step within moments of each other."""

COMMON_STEPS_MIN = 4


def rank_differences(run_dir: Path) -> tuple[str, ...]:
    """Sentences on versions and clocks of the ranks, and on their number in the run before; empty without such."""
    first = _description(run_dir)
    number = other_number(first.get("continues"), first.get("world_size"))
    return tuple(filter(None, (*between_ranks(run_dir), number)))


def between_ranks(run_dir: Path) -> tuple[str, ...]:
    """Sentences on versions and clocks that differ between the ranks of a run; empty without such."""
    folders = {rank: rank_folder(run_dir, rank) for rank in (0, *recorded_ranks(run_dir)[: RANKS_MAX - 1])}
    if len(folders) < 2:
        return ()
    described = {rank: found for rank, folder in folders.items() if (found := _description(folder))}
    return tuple(filter(None, (_versions(described), *_clocks(folders))))


def other_number(continues: Any, world: Any) -> str:
    """That a run of ``world`` ranks continues one with another number of them; "" if it does not, or nobody knows."""
    if not isinstance(continues, Mapping) or not isinstance(world, int):
        return ""
    before = _description(Path(str(continues.get("run_dir")))).get("world_size")
    if not isinstance(before, int) or before == world:
        return ""
    ranks = f"{world} rank{'s' if world != 1 else ''}"
    return (
        f"this run has {ranks}, and the run {continues.get('run')} that it continues had {before}: a step "
        "trains on another number of samples unless the script makes up for it"
    )


def _versions(described: Mapping[int, Mapping[str, Any]]) -> str:
    by_version: dict[str, list[int]] = {}
    for rank, description in described.items():
        by_version.setdefault(str(description.get("steadytrain")), []).append(rank)
    if len(by_version) < 2:
        return ""
    named = [f"{version} on {ranks_named(ranks)}" for version, ranks in by_version.items()]
    return f"the ranks record with different versions of steadytrain: {', '.join(named[:VERSIONS_MAX])}"


def _clocks(folders: Mapping[int, Path]) -> Sequence[str]:
    """The ranks whose clock is not that of the first one: all steps that both have are shifted by the same time."""
    newest = {rank: _newest(folder) for rank, folder in folders.items()}
    first = newest[0]
    lines = []
    for rank, found in newest.items():
        if rank and first is not None and found is not None and abs(found[1] - first[1]) > CLOCK_S_MIN:
            shift = _shift(folders[0], folders[rank])
            if shift is not None:
                lines.append(
                    f"the clock of rank {rank} is {abs(shift):,.0f} s {'ahead of' if shift > 0 else 'behind'} that of "
                    "rank 0: compare times within one rank only"
                )
    return lines[:VERSIONS_MAX]


def _shift(one: Path, other: Path) -> float | None:
    """By how many seconds the times of ``other`` are later in every step that both recorded; None if that varies."""
    try:
        windows = [read_scalars(first_stream(folder)) for folder in (one, other)]
    except own(UsageError, OSError):
        return None
    _, here, there = np.intersect1d(windows[0].steps, windows[1].steps, return_indices=True)
    if len(here) < COMMON_STEPS_MIN:
        return None
    shifts = windows[1].time[there] - windows[0].time[here]
    usual = float(np.median(shifts))
    return usual if abs(usual) > CLOCK_S_MIN and float(np.abs(shifts - usual).max()) <= CLOCK_S_MIN else None


def _newest(folder: Path) -> tuple[int, float] | None:
    try:
        return newest_step(first_stream(folder))
    except own(UsageError, OSError):
        return None


def _description(folder: Path) -> dict[str, Any]:
    try:
        return read_description(folder)
    except UsageError:
        return {}
