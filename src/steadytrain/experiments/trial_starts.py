"""Where trials of an onset in the first steps of a script start: before its first update.

The first snapshot is that after step 1, because no optimizer is known before. If the first update already did the
damage, a smaller rate from there on comes too late. The script runs from its own start instead, with the recorded
batches from step 1 on. Its weights and generators are its own then; the control tells whether they are the run's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

EARLY_ONSET = 16
"""Latest onset of such trials. Each of them launches the script again; later ones share a launch from a snapshot."""

START = 0
"""The step before a script's first."""


def begins_of(starts: Sequence[int], taped: Sequence[tuple[int, int]], onset: int) -> tuple[int, ...]:
    """The steps from whose end a re-run can start.

    Args:
        starts: the first steps after the snapshots.
        taped: the gapless ranges of recorded steps, (first, last).
        onset: the first step of the symptom.
    """
    begins = tuple(start - 1 for start in starts)
    whole = any(first == START + 1 and last >= onset - 1 for first, last in taped)
    return (START, *begins) if whole and onset <= EARLY_ONSET else begins


def other_start(case: Case, *, differs: bool) -> tuple[Case, str] | None:
    """The same case with another start, for a control that is not exact, and how it starts in words.

    From a snapshot of the run in place of a state that a survey kept; from the first snapshot in place of the script's
    start; else with all earlier steps run by the script itself, if they were left out. ``differs``: the control from
    that state is not the run, where otherwise only batches were not those of the tape.
    """
    if differs and case.kept is not None and case.begin == case.kept:
        return case.from_own_snapshot(), "from a snapshot of the run"
    begins = tuple(begin for begin in case.begins if begin != START)
    if len(begins) < len(case.begins):
        return replace(case, begins=begins), "from the first snapshot"
    whole = case.with_whole_lead()
    return None if whole is None else (whole, "with all steps before it run by the script itself")
