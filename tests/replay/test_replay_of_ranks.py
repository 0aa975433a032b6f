"""The ranks of a run are replayed together, each wait ends, and what cannot be replayed is refused in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ranks_together import DATA_PARALLEL, NAN_RANK, NAN_STEP, WORLD, launched
from scripts import call
from steadytrain.core.errors import UsageError
from steadytrain.grouping.gravest import gravest_incident
from steadytrain.replay import native_files
from steadytrain.replay.file_mirror import FileMirror
from steadytrain.storage.rank_group import rank_group
from steadytrain.storage.tape_files import remove_recording

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run that was stopped at a NaN of rank 1."""
    place = tmp_path_factory.mktemp("ranks")
    ended = launched(place, DATA_PARALLEL)
    assert [one.status for one in ended] == [70] * WORLD, ended[0].err
    return place


@pytest.fixture
def planted(folder: Path) -> Iterator[Path]:
    """The same folder; a file that a test plants in it is removed."""
    yield folder
    for name in ("dies", "hangs"):
        (folder / name).unlink(missing_ok=True)


def test_the_gravest_incident_is_that_of_the_rank_where_it_went_wrong(folder: Path) -> None:
    run = folder / "runs" / "run"
    assert gravest_incident(run) == run / "ranks" / f"{NAN_RANK:04d}" / "incidents" / f"step-{NAN_STEP:06d}"


def test_a_replay_is_exact_on_every_rank_and_names_the_failing_one(folder: Path) -> None:
    ended = call("replay", "run", "--runs-dir", "runs", "--json", folder=folder)
    assert ended.returncode == 1, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["from_step"], found["until_step"], found["exact"], found["symptom"]) == (2, NAN_STEP, True, True)
    assert [(one["rank"], one["exact"], one["steps"]) for one in found["ranks"]] == [(0, True, 20), (1, True, 20)]
    assert [one["loss_finite"] for one in found["ranks"]] == [True, False]
    assert found["failing_rank"] == NAN_RANK
    assert "the batch already holds" in found["failing_place"]
    assert found["changed"] == []


def test_another_gradient_on_one_rank_is_named_with_its_rank(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    script = moved / "script.py"
    text = script.read_text(encoding="utf-8")
    script.write_text(
        text.replace("optimizer.zero_grad()", "optimizer.zero_grad(); loss = loss * (1 + rank * (step > 9))")
    )
    ended = call("replay", "run", "--runs-dir", "runs", "--once", "--tree", f"{folder}={moved}", folder=moved)
    assert "first different at step 10" in ended.stdout, ended.stdout + ended.stderr
    assert "  first difference     rank 1, forward: loss" in ended.stdout
    assert "  rank 0               first different at step 10 (backward: " in ended.stdout


@pytest.mark.parametrize(
    ("name", "wait_s", "said"),
    [
        ("dies", 60, "rank 1: the launched script ended with 3 before its last step"),
        ("hangs", 6, "took more than 6 s (--wait-s); all ranks were ended"),
    ],
)
def test_a_rank_that_is_lost_ends_all(name: str, wait_s: float, said: str, planted: Path) -> None:
    (planted / name).touch()
    ended = call("replay", "run", "--runs-dir", "runs", "--wait-s", wait_s, folder=planted)
    assert ended.returncode == 125, ended.stdout + ended.stderr
    assert said in ended.stderr


def test_a_rank_without_a_tape_or_without_a_folder_is_named(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "runs", tmp_path / "runs")
    run = tmp_path / "runs" / "run"
    bundle = gravest_incident(run)
    assert rank_group(bundle) is not None
    shutil.rmtree(run / "incidents")
    remove_recording(run)
    with pytest.raises(UsageError, match="rank 0 has no tape of its steps"):
        rank_group(bundle)
    alone = tmp_path / "alone"
    shutil.copytree(bundle, alone / "incidents" / bundle.name)
    with pytest.raises(UsageError, match="nothing of rank 0 is there, and all ranks are needed"):
        rank_group(alone / "incidents" / bundle.name)


def test_a_rank_whose_bundle_is_gone_is_replayed_from_its_run_folder(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "runs", tmp_path / "runs")
    run = tmp_path / "runs" / "run"
    shutil.rmtree(run / "incidents")
    group = rank_group(gravest_incident(run))
    assert group is not None
    assert group.sources[0] == run
    assert group.sources[1].name == f"step-{NAN_STEP:06d}"
    assert group.choose(first=None, until=NAN_STEP)[0].step == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("onset", "run"), "it has 2 ranks; only replay, trial and diagnose launch all of them"),
        (
            ("replay", "run", "--step-fn", "script:main", "--build", "script:main"),
            "has 2 ranks, which only their script can launch",
        ),
    ],
)
def test_what_launches_one_process_refuses_several_ranks(arguments: tuple[str, ...], said: str, folder: Path) -> None:
    ended = call(*arguments, "--runs-dir", "runs", folder=folder)
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr


def test_locate_searches_the_step_of_a_rank_in_a_world_of_one(folder: Path) -> None:
    ended = call("locate", "run", "--runs-dir", "runs", "--json", folder=folder)
    assert "the batch already holds NaN" in json.loads(ended.stdout)["again"]["why"], ended.stderr


def test_a_store_of_a_file_does_not_let_ranks_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="use env://"):
        native_files._place_of_store("store", FileMirror.__new__(FileMirror))
