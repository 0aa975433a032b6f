"""A start of trials shortly before the onset: when a survey keeps one, and which cases begin there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from steadytrain.experiments.case import LEAD_S_MAX, Case, Ranks
from steadytrain.experiments.near_start import LEAD_STEPS, SAVED_STEPS_MIN, keep_near_start, near_start, starting_near
from steadytrain.experiments.outcome_files import trials_folder
from steadytrain.experiments.trial_starts import START, other_start
from steadytrain.storage.tape_files import SNAPSHOTS_FOLDER, STATE_FILE, STATE_TENSORS, snapshot_name
from trial_cases import finite_case

ONSET = 200
NEAR = ONSET - 1 - LEAD_STEPS
FIRST = NEAR - SAVED_STEPS_MIN


def late(**changed: object) -> Case:
    return replace(finite_case(onset=ONSET, step=ONSET + 2, begins=(1, FIRST), taped=((1, 220),)), **changed)


def kept_under(folder: Path, step: int) -> None:
    place = folder / SNAPSHOTS_FOLDER / snapshot_name(step)
    place.mkdir(parents=True)
    (place / STATE_FILE).write_text("{}")
    (place / STATE_TENSORS).write_bytes(b"tensors")


def test_it_is_kept_if_it_saves_steps_of_every_trial() -> None:
    assert near_start(late()) == NEAR
    assert near_start(late(begins=(1,))) == NEAR
    assert near_start(late(begins=(1, FIRST + 1))) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"begins": ()},
        {"begins": (START, 1)},
        {"taped": ()},
        {"taped": ((1, NEAR), (NEAR + 2, 220))},  # the tape has a gap on the way
        {"ranks": Ranks(world=2)},
        {
            "step_s": LEAD_S_MAX / NEAR * 1.01
        },  # the script would leave out the steps before it, and runs those it has now
    ],
)
def test_it_is_not_kept_where_trials_could_not_start_there(changed: dict[str, object]) -> None:
    assert near_start(late(**changed)) is None


def test_a_case_begins_where_a_state_was_kept(tmp_path: Path) -> None:
    case = late(path=tmp_path / "run")
    assert starting_near(case) == case
    kept_under(tmp_path / "scratch", NEAR)
    keep_near_start(tmp_path / "scratch", case.path)
    near = starting_near(case)
    assert (near.begin, near.begins, near.kept) == (NEAR, (1, FIRST, NEAR), NEAR)
    assert near.earlier_begin == FIRST
    assert starting_near(replace(case, taped=((1, NEAR),))).kept is None
    other = other_start(near, differs=True)
    assert other is not None
    assert (other[0].begin, other[0].kept, other[1]) == (FIRST, None, "from a snapshot of the run")
    assert other_start(near, differs=False) is None


def test_a_later_state_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    source = tmp_path / "run"
    for step in (40, 80):
        kept_under(tmp_path / str(step), step)
        keep_near_start(tmp_path / str(step), source)
    places = trials_folder(source) / SNAPSHOTS_FOLDER
    assert [place.name for place in places.iterdir()] == [snapshot_name(80)]
