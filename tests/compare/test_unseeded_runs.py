"""Two runs that part at once because nobody set a seed: said, and only then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import builders
from steadytrain.compare.run_groups import compare_runs
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.segments import StepRecord

UNSEEDED: dict[str, Any] = {"seeded": False, "torch_drew": "11311206768665678891"}
SEEDED: dict[str, Any] = {"seeded": True, "torch_seed": "7"}


def records(apart_at: int | None = None) -> list[StepRecord]:
    return [
        replace(one, scalars={**one.scalars, "loss": 9.0}) if apart_at is not None and one.step >= apart_at else one
        for one in builders.records(20)
    ]


def notes(folder: Path, left: dict[str, Any] | None, right: dict[str, Any] | None, *, apart_at: int | None) -> str:
    runs = [
        builders.write_run(
            folder / name, steps=steps, facts={**builders.FACTS, **({"randomness": facts} if facts else {})}
        )
        for name, steps, facts in (("left", records(), left), ("right", records(apart_at), right))
    ]
    return " ".join(compare_runs([open_run(run) for run in runs]).notes)


def test_runs_without_a_seed_that_part_at_their_first_step(tmp_path: Path) -> None:
    told = notes(tmp_path, UNSEEDED, SEEDED, apart_at=1)
    assert "no seed was set in left: " in told
    assert "steadytrain run --seed N" in told


@pytest.mark.parametrize(
    ("left", "right", "apart_at"),
    [
        (UNSEEDED, UNSEEDED, 5),  # they began equal: something else parted them
        (UNSEEDED, UNSEEDED, None),
        (SEEDED, SEEDED, 1),
        (None, None, 1),  # recorded by an older version
    ],
)
def test_nothing_is_said_of_seeds_otherwise(
    tmp_path: Path, left: dict[str, Any] | None, right: dict[str, Any] | None, apart_at: int | None
) -> None:
    assert "no seed" not in notes(tmp_path, left, right, apart_at=apart_at)
