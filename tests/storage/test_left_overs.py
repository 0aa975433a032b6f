"""What a killed process left half-written is removed by the next run beside it, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import builders
from steadytrain.experiments.outcome_files import write_result
from steadytrain.storage import left_overs
from steadytrain.storage.left_overs import clear_beside, clear_left_overs
from steadytrain.storage.processes import is_gone, process_mark
from steadytrain.storage.run_folder import RunWriter, open_run

HALF = (
    "tape/000001-000004.safetensors.part",
    "tables/main/gradients/.000001.part",
    "steps/main/.000001-000016.part",
    "saved/.step-000003.json.x1y2z3ab",
    "snapshots/step-000013.part/state.json",
    "recovered-index.sqlite-wal",
)
WHOLE = ("tape/000001-000004.json", "snapshots/step-000001/state.json", "steps/main/000001.steps")
OF_OTHERS = ("incidents/step-000030/.manifest.json.x1y2z3ab", "trials/.facts.json.x1y2z3ab", "wandb/.lock", ".mine")


@pytest.fixture(scope="module")
def gone() -> str:
    """The mark of a process that has ended."""
    code = "from steadytrain.storage.processes import process_mark; print(process_mark())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.strip()


def run_of(folder: Path, mark: str | None) -> Path:
    for name in (*HALF, *WHOLE, *OF_OTHERS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "run.json").write_text(json.dumps({"format": "steadytrain.run", "process": mark}))
    return folder


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_next_run_removes_what_an_ended_one_left_half_written(tmp_path: Path, gone: str) -> None:
    run = run_of(tmp_path / "killed", gone)
    rank = run_of(run / "ranks" / "0001", gone)
    RunWriter(tmp_path / "next", {"name": "next"}).close()
    assert {name for name in names(run) if not name.startswith("ranks")} == {"run.json", *WHOLE, *OF_OTHERS}
    assert names(rank) == {"run.json", *WHOLE, *OF_OTHERS}
    assert not (run / "snapshots" / "step-000013.part").exists()


@pytest.mark.parametrize("mark", ["alive", "00000000-1", None, "no mark"])
def test_a_run_in_progress_or_of_another_machine_keeps_everything(tmp_path: Path, mark: str | None) -> None:
    run = run_of(tmp_path / "other", process_mark() if mark == "alive" else mark)
    before = names(run)
    clear_left_overs(tmp_path)
    assert names(run) == before


def test_a_run_that_was_killed_before_it_was_described_is_removed(tmp_path: Path, gone: str) -> None:
    for name, mark in (("killed", gone), ("beginning", process_mark())):
        (tmp_path / name).mkdir()
        (tmp_path / name / f".run.json.{mark}").write_text("{")
    clear_left_overs(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["beginning"]


def test_a_run_says_which_process_writes_it(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", {"name": "run"}).close()
    mark = open_run(tmp_path / "run").description["process"]
    assert mark == process_mark()
    assert not is_gone(mark)


def test_what_an_ended_process_wrote_beside_a_document_is_removed(tmp_path: Path, gone: str) -> None:
    left, alive = tmp_path / f".facts.json.{gone}.x1y2z3ab", tmp_path / f".facts.json.{process_mark()}.x1y2z3ab"
    for path in (left, alive, tmp_path / "facts.json"):
        path.write_text("{}")
    write_result(tmp_path, "other.json", {"schema": "x"})  # a run: its trials are in a folder of their own
    assert left.exists()
    clear_beside(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [alive.name, "facts.json", "trials"]


def test_what_an_ended_process_wrote_beside_the_documents_of_a_bundle_is_removed(tmp_path: Path, gone: str) -> None:
    run, other = run_of(tmp_path / "killed", gone), tmp_path / "elsewhere"
    (run / "incidents" / "step-000030" / "manifest.json").write_text("{}")
    left = [folder / f".manifest.json.{gone}.x1y2z3ab" for folder in (run / "incidents" / "step-000030", other)]
    other.mkdir()
    for path in left:
        path.write_text("{")
    (run / "incidents" / "link").symlink_to(other)
    clear_left_overs(tmp_path)
    assert [path.exists() for path in left] == [False, True]  # a link is not followed
    assert {"incidents/step-000030/manifest.json", OF_OTHERS[0]} <= names(run)


def test_a_conclusion_is_written_where_a_killed_command_left_half_of_one(tmp_path: Path, gone: str) -> None:
    bundle = builders.write_bundle(tmp_path / "incidents" / "step-412")
    folders = (tmp_path / "incidents" / "trials" / "step-412", bundle / "answer")
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / f".diagnosis.json.{gone}.x1y2z3ab").write_text("{")
    write_result(bundle, "diagnosis.json", {"schema": "x"})
    assert [[path.name for path in folder.iterdir()] for folder in folders] == [["diagnosis.json"]] * 2


def test_only_the_newest_runs_are_looked_at(tmp_path: Path, gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_overs, "RUNS_MAX", 1)
    runs = [run_of(tmp_path / name, gone) for name in ("one", "two")]
    clear_left_overs(tmp_path)
    whole = {"run.json", *WHOLE, *OF_OTHERS}
    assert [names(run) == whole for run in runs].count(True) == 1
