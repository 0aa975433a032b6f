"""A folder in which only ranks of another machine recorded: it can be read, and says that it is a part."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import builders
from steadytrain.cli.show import command
from steadytrain.report.build import from_run
from steadytrain.storage import run_folder
from steadytrain.storage.ranks_of_run import part_shown, speaks_here
from steadytrain.storage.run_folder import open_run, part_of_run
from steadytrain.storage.run_search import find, newest, survey

PART = "this is a part of the run, ranks 2 and 3 of 4: rank 0 does not record here; "


@pytest.fixture
def part(tmp_path: Path) -> Path:
    for rank in (2, 3):
        folder = tmp_path / "r" / "ranks" / f"{rank:04d}"
        builders.quiet_run(folder, name="r", rank=rank, world_size=4, symptoms=[builders.symptom()][: rank == 3])
    return tmp_path / "r"


def test_it_is_found_by_its_folder_and_by_its_name(part: Path) -> None:
    first = part / "ranks" / "0002"
    assert part_of_run(part) == find(str(part), part.parent) == find("r", part.parent) == newest(part.parent) == first
    assert [(run.name, run.path) for run in survey(part.parent).runs] == [("r", first)]


def test_it_shows_all_its_ranks_and_that_it_is_a_part(part: Path) -> None:
    run = open_run(find("r", part.parent))
    assert [one.name for one in run.ranks] == ["0003"]
    report = from_run(run)
    assert [row.origin for row in report.symptoms] == ["rank 3"]
    assert report.notes[0].startswith(PART.capitalize().replace("Rank", "rank")[:40])
    shown = json.loads(CliRunner().invoke(command, [str(part), "--json"]).output)
    assert shown["part"].startswith(PART)
    assert shown["unseen_ranks"] == []


def test_a_whole_run_is_none(part: Path) -> None:
    builders.quiet_run(part, world_size=4)
    assert part_of_run(part) is None
    assert find("r", part.parent) == part
    assert open_run(part / "ranks" / "0002").ranks == ()
    assert part_shown(open_run(part)) == part_shown(open_run(part / "ranks" / "0002")) == ""


def test_a_folder_that_cannot_be_read_hides_no_run(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refused(path: object) -> object:
        if str(path).endswith("/ranks"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)  # type: ignore[call-overload]

    builders.quiet_run(part.parent / "other")
    monkeypatch.setattr(run_folder.os, "scandir", refused)
    assert [run.name for run in survey(part.parent).runs] == ["other"]


def test_the_first_rank_of_the_part_reports(part: Path) -> None:
    assert [speaks_here(part, rank) for rank in (2, 3)] == [True, False]
    builders.quiet_run(part, world_size=4)
    assert [speaks_here(part, rank) for rank in (2, 3)] == [False, False]
