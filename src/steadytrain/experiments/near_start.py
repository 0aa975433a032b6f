"""A state shortly before an onset, from which trials start if the last snapshot of the run is far before it.

The survey replays all steps up to the onset anyway, and keeps the state that it passes on the way (``survey``). So the
steps before it are run again once, and not once a trial. It lies in the trials folder, like a snapshot of the run.
Torch-free.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from steadytrain.experiments.outcome_files import trials_folder
from steadytrain.experiments.trial_starts import START
from steadytrain.storage.tape_files import SNAPSHOTS_FOLDER, Recording, find_snapshots

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

LEAD_STEPS = 32
"""Steps between that state and the onset. Changes act in them, so that a trial meets the onset in another state."""

SAVED_STEPS_MIN = 32
"""It is kept if each trial has so many steps less."""


def near_start(case: Case) -> int | None:
    """The step after which a survey of ``case`` keeps the state; None if trials start near enough, or on ranks."""
    begin, near = case.begin, case.onset - 1 - LEAD_STEPS
    if begin is None or begin == START or case.ranks is not None or case.replayable is not None:
        return None
    reached = next((last for first, last in case.taped if first <= begin + 1 <= last), begin)
    worth_it = near - begin >= SAVED_STEPS_MIN and near < reached
    return near if worth_it and case.lead(near) == case.lead(begin) else None


def starting_near(case: Case) -> Case:
    """The case with the start that a survey kept, if there is one in its tape."""
    shots = find_snapshots(trials_folder(case.path)) if case.begins and case.ranks is None else []
    kept = [shot.step for shot in shots if any(first <= shot.step + 1 <= last for first, last in case.taped)]
    if not kept or kept[-1] in case.begins:
        return case
    return replace(case, begins=tuple(sorted((*case.begins, kept[-1]))), kept=kept[-1])


def with_near_starts(recording: Recording, source: Path) -> Recording:
    """The recording of a bundle or run, with the states that a survey of it kept."""
    known = {shot.step for shot in recording.snapshots}
    kept = [shot for shot in find_snapshots(trials_folder(source)) if shot.step not in known]
    if not kept:
        return recording
    return replace(recording, snapshots=tuple(sorted((*recording.snapshots, *kept), key=lambda shot: shot.step)))


def keep_near_start(folder: Path, source: Path) -> None:
    """Moves the snapshot that a survey wrote under ``folder`` into the trials folder, in place of an earlier one.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    for shot in find_snapshots(folder):
        place = trials_folder(source) / SNAPSHOTS_FOLDER
        part = place / f"{shot.folder.name}.part"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            shutil.copytree(shot.folder, part)
            os.replace(part, place / shot.folder.name)
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
            raise
