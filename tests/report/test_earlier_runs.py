"""A run says that it passed the step at which an earlier run of the same command went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import builders
from steadytrain.report import build
from steadytrain.storage.run_folder import open_run

BEFORE, AFTER = "2026-11-20T10:00:00+00:00", "2026-11-20T11:00:00+00:00"
PASSED = "It passed step 412, where bad, an earlier run of the same command, had nonfinite-gradient."


def said(path: Path) -> bool:
    return PASSED in build.from_run(open_run(path)).summary


def test_a_mended_run_says_what_did_not_come_again(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "bad", started=BEFORE)
    mended = builders.quiet_run(tmp_path / "mended", started=AFTER)
    assert said(mended)


@pytest.mark.parametrize(
    "changes",
    [
        {"started": "2026-11-20T09:00:00+00:00"},  # it came before
        {"argv": ["other.py"]},
        {"cwd": "/elsewhere"},
        {"steps": builders.records(411)},
        {"symptoms": [builders.symptom(9, severity="warning")]},
    ],
)
def test_nothing_is_said_of_a_run_that_shows_nothing(changes: dict[str, Any], tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "bad", started=BEFORE)
    assert not said(builders.quiet_run(tmp_path / "run", **{"started": AFTER, **changes}))


def test_the_newest_earlier_run_counts(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "bad", started=BEFORE)
    builders.quiet_run(tmp_path / "between", started="2026-11-20T10:30:00+00:00")
    assert not said(builders.quiet_run(tmp_path / "run", started=AFTER))


def test_a_damaged_neighbour_is_passed_over(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "bad", started=BEFORE)
    broken = builders.quiet_run(tmp_path / "broken", started="2026-11-20T10:30:00+00:00")
    (broken / "run.json").write_text("{")
    assert said(builders.quiet_run(tmp_path / "run", started=AFTER))
