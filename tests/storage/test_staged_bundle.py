"""A bundle appears whole or not at all, and a reader never sees it damaged, wherever its writer is killed."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import builders
from steadytrain.core.incident import Finding
from steadytrain.storage import processes, staged_bundle
from steadytrain.storage.bundle import MANIFEST, open_bundle
from steadytrain.storage.run_folder import RunWriter, open_run
from steadytrain.storage.run_summaries import summary_of
from steadytrain.storage.staged_bundle import disk_is_full, free_place, staged, update_incident


def test_nothing_is_seen_before_the_bundle_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "step-412"
    with staged(path) as stage:
        builders.write_bundle(stage)
        assert not path.exists()
    assert open_bundle(path).incident.step == 412
    assert os.listdir(tmp_path) == ["step-412"]


def test_nothing_remains_of_a_bundle_that_could_not_be_written(tmp_path: Path) -> None:
    def fill(path: Path) -> None:
        with staged(path) as stage:
            builders.write_bundle(stage)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left"):
        fill(tmp_path / "step-412")
    assert os.listdir(tmp_path) == []


class Killed(BaseException):
    """Stands for the end of the process: no handler of ours makes anything good after it."""


def changes_cut_off_at(point: int, change: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether ``change`` was cut off: the process ends before its change number ``point`` of a file."""
    left = point

    def dies_first(function):
        def called(*args, **options):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return function(*args, **options)

        return called

    with monkeypatch.context() as patches:
        for name in ("replace", "unlink", "fsync", "chmod"):
            patches.setattr(os, name, dies_first(getattr(os, name)))
        with suppress(Killed):
            change()
    return left < 0


def test_a_change_that_is_cut_off_anywhere_leaves_a_whole_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = builders.incident(finding=Finding(None, "not searched"))
    whole = builders.write_bundle(tmp_path / "whole", before)
    found = []
    for point in itertools.count():
        path = shutil.copytree(whole, tmp_path / f"{point}")
        cut = changes_cut_off_at(point, lambda path=path: update_incident(path, builders.incident()), monkeypatch)
        found.append(open_bundle(path).finding.located is not None)
        update_incident(path, builders.incident())
        assert open_bundle(path).finding.located == builders.located()
        assert not [name for name in os.listdir(path) if name.startswith(".")]
        if not cut:
            break
    assert found == sorted(found)
    assert set(found) == {True, False}
    assert len(found) > 6


def test_two_processes_that_change_a_bundle_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = builders.write_bundle(tmp_path / "step-412")
    monkeypatch.setattr(staged_bundle, "LOCK_WAIT_S", 0.05)
    with staged_bundle._locked(path):
        script = f"import fcntl, os; fcntl.flock(os.open({str(path)!r}, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert "BlockingIOError" in other.stderr
        with pytest.raises(OSError, match="another process is changing the bundle"):
            update_incident(path, builders.incident())
    update_incident(path, builders.incident())


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    host = processes.process_mark().partition("-")[0]
    folder = tmp_path / "runs" / "killed" / "incidents"
    left, alive, elsewhere = (
        folder / f".stage-{host}-{int(gone.stdout)}-step-000005",
        folder / f".stage-{host}-{os.getpid()}-step-000006",
        folder / f".stage-00000000-{int(gone.stdout)}-step-000007",
    )
    for stage in (left, alive, elsewhere):
        builders.write_bundle(stage)
    RunWriter(tmp_path / "runs" / "next", {"name": "next"}).close()
    assert not left.exists()
    assert alive.exists()
    assert elsewhere.exists()


def test_a_second_incident_at_a_step_gets_a_name_of_its_own(tmp_path: Path) -> None:
    assert free_place(tmp_path / "step-000004").name == "step-000004"
    (tmp_path / "step-000004").mkdir()
    (tmp_path / "step-000004-2").mkdir()
    assert free_place(tmp_path / "step-000004").name == "step-000004-3"


def test_a_full_disk_is_recognized_in_the_words_of_each_writer() -> None:
    class SafetensorError(Exception):
        pass

    assert disk_is_full(OSError(errno.ENOSPC, "No space left on device"))
    assert disk_is_full(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert disk_is_full(SafetensorError("Error while serializing: I/O error: Os { code: 28, kind: StorageFull }"))
    assert not disk_is_full(OSError(errno.EACCES, "Permission denied"))
    assert not disk_is_full(SafetensorError("Error while serializing: I/O error: Os { code: 13 }"))
    assert not disk_is_full(ValueError("code"))


def test_a_bundle_that_a_killed_process_could_not_list_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    writer = RunWriter(path, {"name": "run"})
    for step in (3, 20, 100):
        builders.write_bundle(path / "incidents" / f"step-{step:06d}")
    writer.add_incident(path / "incidents" / "step-000020", 20)
    writer.close()
    (path / "incidents" / ".stage-00000000-1-step-000200").mkdir()
    (path / "incidents" / "step-000300").mkdir()
    assert not (path / "incidents" / "step-000300" / MANIFEST).exists()
    assert [bundle.name for bundle in open_run(path).incidents] == ["step-000003", "step-000020", "step-000100"]
    assert summary_of(path).incidents == 3
