"""What differs between the ranks of a run: versions, clocks, and their number in the run before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import builders
from steadytrain.report import build
from steadytrain.storage.rank_differences import other_number, rank_differences
from steadytrain.storage.ranks_of_run import rank_folder
from steadytrain.storage.run_folder import open_run


def two_ranks(run: Path, *, shifts: tuple[float, float] = (0.0, 0.0), **second: Any) -> Path:
    """A run of two ranks of 40 steps. The times of the second are ``shifts`` seconds later, in the first half and in
    the second half of its steps."""
    builders.quiet_run(run, steps=builders.records(40), world_size=2)
    late = [replace(one, time=one.time + shifts[one.step > 20]) for one in builders.records(40)]
    builders.quiet_run(rank_folder(run, 1), steps=late, **{"rank": 1, "world_size": 2, **second})
    return run


def test_ranks_that_agree_are_not_mentioned(tmp_path: Path) -> None:
    assert rank_differences(two_ranks(tmp_path / "r", shifts=(0.2, 0.1))) == ()
    assert rank_differences(builders.quiet_run(tmp_path / "alone")) == ()


def test_versions_of_steadytrain(tmp_path: Path) -> None:
    run = two_ranks(tmp_path / "r", steadytrain="0.0.9")
    line = "the ranks record with different versions of steadytrain: 0.1.0 on rank 0, 0.0.9 on rank 1"
    assert rank_differences(run) == (line,)
    assert f"{line[:1].upper()}{line[1:]}." in build.from_run(open_run(run)).notes


@pytest.mark.parametrize(("shift", "how"), [(3600.0, "3,600 s ahead of"), (-90.0, "90 s behind")])
def test_a_clock_that_differs(tmp_path: Path, shift: float, how: str) -> None:
    run = two_ranks(tmp_path / "r", shifts=(shift, shift + 0.5))
    assert rank_differences(run) == (
        f"the clock of rank 1 is {how} that of rank 0: compare times within one rank only",
    )


def test_a_rank_at_its_own_pace_has_no_other_clock(tmp_path: Path) -> None:
    assert rank_differences(two_ranks(tmp_path / "r", shifts=(10.0, 600.0))) == ()


def test_another_number_of_ranks_after_a_resume(tmp_path: Path) -> None:
    before = two_ranks(tmp_path / "before")
    continues = {"run": "before", "run_dir": str(before), "step": 20}
    assert other_number(continues, 2) == ""
    assert other_number(None, 2) == ""
    assert other_number({**continues, "run_dir": str(tmp_path / "gone")}, 3) == ""
    run = builders.quiet_run(tmp_path / "run", world_size=3, continues=continues)
    (line,) = rank_differences(run)
    assert line.startswith("this run has 3 ranks, and the run before that it continues had 2: ")
