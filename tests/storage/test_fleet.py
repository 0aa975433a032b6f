"""The runs below a root: of a folder and of an address, with what each came to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

import builders
from steadytrain.core.errors import UsageError
from steadytrain.experiments.outcome_files import write_result
from steadytrain.storage import roots
from steadytrain.storage.fleet import FleetRun, fleet
from steadytrain.storage.left_overs import mark_of_process
from steadytrain.storage.roots import root_at
from steadytrain.storage.run_summaries import keep_summary

MACHINE = {"accelerators": {"gpus": [{"name": "NVIDIA H100"}, {"name": "NVIDIA H100"}]}, "host": {"processor": "EPYC"}}


def verdict(source: Path, cause: str, status: str | None) -> None:
    write_result(source, "diagnosis.json", {"schema": "steadytrain.diagnosis/1", "verdict": cause, "status": status})


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """Runs of two people: one healthy, one stopped with a diagnosis of each of its places."""
    facts = {**builders.FACTS, "machine": MACHINE}
    bad = builders.bad_run(tmp_path / "ada" / "vision" / "runs" / "bad", facts=facts, node="n17", world_size=4)
    verdict(bad, "unknown", None)
    verdict(bad / "incidents" / "step-412", "bad-batch", "confirmed")
    quiet = builders.quiet_run(tmp_path / "ben" / "runs" / "quiet", slurm={"node": "n3"})
    for path in (bad, quiet):
        keep_summary(path)
    (tmp_path / "ben" / "data" / "deep").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def bucket(team: Path) -> Iterator[str]:
    """The same runs in memory, as in an object store."""
    files = fsspec.filesystem("memory")
    files.put(f"{team}/", "/bucket", recursive=True)
    yield "memory://bucket"
    files.rm("/bucket", recursive=True)


def both(team: Path) -> tuple[FleetRun, FleetRun]:
    bad, quiet = fleet(root_at(str(team))).runs
    return bad, quiet


def test_each_run_says_where_it_ran_what_it_showed_and_what_caused_it(team: Path) -> None:
    bad, quiet = both(team)
    assert (bad.folder, bad.node, bad.devices, bad.ranks) == ("ada/vision/runs/bad", "n17", ("NVIDIA H100",) * 2, 4)
    assert (bad.state, bad.steps, bad.incidents, bad.worst) == ("stopped", 412, 1, "critical")
    assert bad.symptoms == (("nonfinite-gradient", "critical", 412),)
    assert (bad.cause, bad.status) == ("bad-batch", "confirmed")
    assert (quiet.folder, quiet.node, quiet.steps, quiet.symptoms) == ("ben/runs/quiet", "n3", 1000, ())
    assert (quiet.cause, quiet.status) == (None, None)


def test_an_address_says_the_same(team: Path, bucket: str) -> None:
    assert fleet(root_at(bucket)).runs == both(team)


def test_the_copy_of_a_verdict_in_a_bundle_counts_where_the_folder_beside_it_is_gone(team: Path) -> None:
    for path in sorted((team / "ada").rglob("trials"), reverse=True):
        for file in path.rglob("*.json"):
            file.unlink()
    assert both(team)[0].cause == "bad-batch"


def test_of_a_run_that_is_not_over_the_index_is_read_here_and_nothing_elsewhere(team: Path, bucket: str) -> None:
    going = builders.write_run(team / "cy" / "live", steps=builders.records(7), facts={}, **mark_of_process())
    fsspec.filesystem("memory").put(f"{going}/", "/bucket/cy/live", recursive=True)
    here = {run.folder: run for run in fleet(root_at(str(team))).runs}["cy/live"]
    there = {run.folder: run for run in fleet(root_at(bucket)).runs}["cy/live"]
    assert (here.state, here.steps) == ("running", 7)
    assert (there.state, there.steps, there.ended) == ("not recorded", None, None)


def test_a_damaged_run_is_named_and_hides_no_other(team: Path, bucket: str) -> None:
    for number, text in enumerate(("", "[]", "{", '{"format": "steadytrain.run", "version": 99}', "[" * 9_000)):
        folder = team / "damaged" / str(number)
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(text)
    fsspec.filesystem("memory").put(f"{team}/damaged/", "/bucket/damaged", recursive=True)
    for where in (str(team), bucket):
        found = fleet(root_at(where))
        assert len(found.runs) == 2
        assert len(found.unreadable) == 5
        assert all("\n" not in line for line in found.unreadable)


@pytest.mark.parametrize("text", ["", "[]", '{"verdict": 3}', '{"verdict": "x", "status": []}', "\x00"])
def test_a_damaged_verdict_is_none(team: Path, text: str) -> None:
    for path in team.rglob("diagnosis.json"):
        path.write_text(text)
    assert both(team)[0].status is None


def test_links_and_hidden_folders_are_not_searched(team: Path) -> None:
    (team / "link").symlink_to(team / "ada")
    (team / ".trash").mkdir()
    os.rename(team / "ben", team / ".trash" / "ben")
    assert [run.folder for run in fleet(root_at(str(team))).runs] == ["ada/vision/runs/bad"]


def test_the_root_may_be_a_run_itself_and_no_run_is_searched_within_one(team: Path) -> None:
    builders.quiet_run(team / "ben" / "runs" / "quiet" / "ranks" / "0001")
    (only,) = fleet(root_at(str(team / "ben" / "runs" / "quiet"))).runs
    assert only.folder == ""


def test_the_search_is_bounded(team: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roots, "FOLDERS_MAX", 2)
    assert ["after 2 folders" in fleet(root_at(where)).ended_early for where in (str(team), bucket)] == [True, True]
    monkeypatch.setattr(roots, "FOLDERS_MAX", 50)
    monkeypatch.setattr(roots, "DEPTH_MAX", 2)
    assert [[run.folder for run in fleet(root_at(where)).runs] for where in (str(team), bucket)] == [
        ["ben/runs/quiet"],
        ["ben/runs/quiet"],
    ]
    assert ["deeper than 2" in fleet(root_at(where)).ended_early for where in (str(team), bucket)] == [True, True]
    monkeypatch.setattr(roots, "DEPTH_MAX", 8)
    assert [fleet(root_at(where)).ended_early for where in (str(team), bucket)] == ["", ""]


def test_a_document_elsewhere_is_read_within_a_bound(team: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roots, "REMOTE_BYTES_MAX", 16)
    found = fleet(root_at(bucket))
    assert (found.runs, len(found.unreadable)) == ((), 2)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (" ", "names no folder"),
        (__file__, "this is no folder"),
        ("/no/such/folder", "no such folder"),
        ("memory://nothing", "no such folder there"),
        ("nonsense://a/b", "Protocol not known"),
        ("file:///no/such/folder", "no such folder there"),
    ],
)
def test_what_cannot_be_reached_is_an_error_in_one_line(where: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as told:
        fleet(root_at(where))
    assert "\n" not in str(told.value)


def test_a_password_in_an_address_is_not_told() -> None:
    with pytest.raises(UsageError) as told:
        fleet(root_at("nonsense://ada:hunter2hunter2@host/runs"))
    assert "hunter2" not in str(told.value)


def test_a_summary_of_an_older_version_is_not_used(team: Path, bucket: str) -> None:
    kept = team / "ben" / "runs" / "quiet" / "summary.json"
    document = json.loads(kept.read_text())
    del document["symptoms"]
    with fsspec.open(f"{bucket}/ben/runs/quiet/summary.json", "w") as file:
        json.dump(document, file)
    assert {run.folder: run.steps for run in fleet(root_at(bucket)).runs}["ben/runs/quiet"] is None


def test_a_copy_without_its_index_is_what_its_summary_says(team: Path) -> None:
    (team / "ada" / "vision" / "runs" / "bad" / "index.sqlite").unlink()
    bad, _ = both(team)
    assert (bad.state, bad.steps, bad.worst) == ("stopped", 412, "critical")


def test_runs_that_broke_off_come_before_those_that_ended_well(team: Path) -> None:
    builders.write_run(
        team / "cy" / "failed", steps=builders.records(7), facts={"ended": "failed"}, started="2020-01-01"
    )
    assert [run.state for run in fleet(root_at(str(team))).runs] == ["stopped", "failed", "finished"]


def test_the_symptom_that_a_verdict_explains_is_told(team: Path) -> None:
    answer = {"verdict": "bad-batch", "status": "confirmed", "symptom": "loss-spike: the loss spiked"}
    write_result(team / "ada" / "vision" / "runs" / "bad" / "incidents" / "step-412", "diagnosis.json", answer)
    assert both(team)[0].cause_of == "loss-spike"


def test_a_name_that_is_no_text_damages_no_run(team: Path) -> None:
    os.rename(os.fsencode(team / "ben"), os.fsencode(team) + b"/b\xff")
    found = fleet(root_at(str(team)))
    assert (len(found.runs), found.unreadable) == (2, ())


def test_a_folder_that_cannot_be_listed_is_named(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refused(path: object) -> object:
        if str(path).endswith("/data"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(roots.os, "scandir", refused)
    assert fleet(root_at(str(team))).unreadable == ("ben/data: cannot be listed (Permission denied)",)


def test_a_run_whose_description_is_no_file_is_named(team: Path) -> None:
    (team / "odd" / "run.json").mkdir(parents=True)
    (line,) = fleet(root_at(str(team))).unreadable
    assert "odd" in line


@pytest.fixture
def of_rank(team: Path) -> Path:
    """A run whose only incident is that of rank 2, with a confirmed cause."""
    run = builders.quiet_run(team / "di" / "ranks-differ", world_size=4)
    rank = builders.bad_run(run / "ranks" / "0002", rank=2, world_size=4)
    verdict(rank / "incidents" / "step-412", "bad-batch", "confirmed")
    for path in (rank, run):
        keep_summary(path)
    return run


def sent(run: Path) -> FleetRun:
    """What an address says of a run."""
    files = fsspec.filesystem("memory")
    files.put(f"{run}/", "/sent/run", recursive=True)
    try:
        (found,) = fleet(root_at("memory://sent")).runs
    finally:
        files.rm("/sent", recursive=True)
    return found


@pytest.mark.parametrize("kept", ["of_ranks", "older", "none"])
def test_a_verdict_of_another_rank_is_that_of_the_run(of_rank: Path, kept: str) -> None:
    summary = of_rank / "summary.json"
    if kept == "older":
        summary.write_text(json.dumps({k: v for k, v in json.loads(summary.read_text()).items() if k != "of_ranks"}))
    if kept == "none":
        summary.unlink()
    here = {run.folder: run for run in fleet(root_at(str(of_rank.parents[1]))).runs}["di/ranks-differ"]
    there = sent(of_rank)
    assert [(one.cause, one.status) for one in (here, there)] == [("bad-batch", "confirmed")] * 2
    assert here.incidents == 1
    assert there.incidents == (0 if kept == "older" else 1)


def test_an_incident_that_all_ranks_kept_counts_once(team: Path) -> None:
    run = team / "ada" / "vision" / "runs" / "bad"
    builders.bad_run(run / "ranks" / "0001", rank=1, world_size=4)
    assert both(team)[0].incidents == 1


def test_a_run_whose_first_rank_was_ended_by_its_launcher_is_what_the_others_say(team: Path) -> None:
    run = builders.write_run(team / "di" / "ended", steps=builders.records(412), facts={}, process=None, world_size=4)
    for rank, ended in ((1, "failed"), (2, "stopped")):
        one = builders.bad_run(run / "ranks" / f"{rank:04d}", rank=rank, world_size=4, facts={"ended": ended})
        keep_summary(one)
    here = {one.folder: one for one in fleet(root_at(str(team))).runs}["di/ended"]
    assert (here.state, here.ended) == ("stopped", "stopped")
    there = sent(run)
    assert (there.state, there.ended, there.steps, there.worst) == ("stopped", "stopped", 412, "critical")
    assert [name for name, _, _ in there.symptoms] == ["nonfinite-gradient"]
    assert there.incidents == 1
