"""A script that closes our descriptors and opens its own files: they get our numbers, and none of our bytes."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import builders
from scripts import run_script
from steadytrain.exporters import exporter_process
from steadytrain.exporters.exporter import ExporterGoneError
from steadytrain.storage.own_file import OwnFile, OwnStream, descriptors_below, file_id
from steadytrain.storage.run_folder import RunWriter, open_run
from steadytrain.storage.segments import SegmentWriter, read_scalars

Take = Callable[[Path], dict[Path, int]]


_HELD: list[int] = []
"""Files whose descriptors were taken. SQLite goes by the inode and still holds its lock: a new file must not get it."""


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Take]:
    """Gives the descriptors that lead below a folder to files of the script, as a close and an open do."""
    given: dict[Path, int] = {}

    def take(folder: Path) -> dict[Path, int]:
        for number in list(descriptors_below(folder)):
            _HELD.append(os.open(f"/proc/self/fd/{number}", os.O_PATH))
            path = tmp_path / f"own.{number}"
            path.write_bytes(b"checkpoint")
            other = os.open(path, os.O_RDWR | os.O_APPEND)
            os.dup2(other, number)
            os.close(other)
            given[path] = number
        return given

    yield take
    for path, number in given.items():
        assert path.read_bytes() == b"checkpoint", path
        there = path.stat()
        assert file_id(number) == (there.st_dev, there.st_ino), "a descriptor of the script was closed"
        os.close(number)


def test_what_a_disk_did_not_take_at_once_is_written_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OwnFile(tmp_path / "own.steps", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
    write = os.write
    monkeypatch.setattr(os, "write", lambda number, data: write(number, data[:2]))
    assert file.write(b"seven b") == 7
    assert (tmp_path / "own.steps").read_bytes() == b"seven b"


def test_a_disk_that_takes_no_more_is_asked_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OwnFile(tmp_path / "own.steps", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
    write, asked = os.write, []

    def nearly_full(number: int, data: bytes) -> int:
        asked.append(len(data))
        if len(asked) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(number, data[:2])

    monkeypatch.setattr(os, "write", nearly_full)
    assert file.write(b"seven b") == 2
    assert asked == [7, 5]


def test_a_file_is_opened_again_when_the_script_took_its_descriptor(tmp_path: Path, taken: Take) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    file = OwnFile(folder / "own.steps", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
    file.write(b"one ")
    assert len(taken(folder)) == 1
    assert not file.is_ours
    file.write(b"two ")
    file.write(b"three torn")
    file.truncate(13)
    file.close()
    assert (folder / "own.steps").read_bytes() == b"one two three"


def test_a_closed_number_is_not_closed_again(tmp_path: Path, taken: Take) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    file = OwnFile(folder / "own", os.O_WRONLY | os.O_CREAT)
    assert len(taken(folder)) == 1
    file.close()


def test_a_file_that_is_not_there_any_more_is_an_error(tmp_path: Path, taken: Take) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    path = folder / "own"
    file = OwnFile(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    taken(folder)
    path.rename(folder / "moved")
    path.write_bytes(b"another")
    with pytest.raises(OSError, match="another file is there now"):
        file.write(b"record")
    assert path.read_bytes() == b"another"


def test_a_stream_for_a_library_is_held_the_same_way(tmp_path: Path, taken: Take) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    stream = io.BufferedWriter(OwnStream(folder / "events"))
    stream.write(b"one ")
    stream.flush()
    taken(folder)
    stream.write(b"two")
    stream.close()
    assert (folder / "events").read_bytes() == b"one two"


def test_records_of_steps_go_on(tmp_path: Path, taken: Take) -> None:
    folder = tmp_path / "main"
    writer = SegmentWriter(folder, stream="main")
    records = builders.records(6)
    for record in records[:3]:
        writer.append(record, builders.TENSORS)
    assert len(taken(folder)) == 1
    for record in records[3:]:
        writer.append(record, builders.TENSORS)
    writer.close()
    assert read_scalars(folder).steps.tolist() == [record.step for record in records]


def test_the_index_is_recovered_with_what_it_held(tmp_path: Path, taken: Take) -> None:
    folder = tmp_path / "run"
    writer = RunWriter(folder, dict(builders.DESCRIPTION))
    writer.set_fact("before", 1)
    writer.raise_symptom(builders.symptom(7))
    assert len(taken(folder)) >= 2  # the database and its log
    writer.set_fact("after", 2)
    writer.raise_symptom(builders.symptom(9))
    writer.close()
    run = open_run(folder)
    assert [symptom.first_step for symptom in run.symptoms] == [7, 9]
    assert run.facts["before"] == 1
    assert run.facts["after"] == 2
    assert sorted(path.name for path in folder.glob("*index.sqlite*")) == ["index.sqlite"]


def test_the_index_is_closed_without_a_write_to_the_scripts_files(tmp_path: Path, taken: Take) -> None:
    folder = tmp_path / "run"
    writer = RunWriter(folder, dict(builders.DESCRIPTION))
    writer.set_fact("before", 1)
    taken(folder)
    writer.close()
    assert open_run(folder).facts["before"] == 1


def test_an_exporter_whose_pipe_the_script_closed_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    stdin = own.open("wb", buffering=0)
    stdout = other.open("w+b", buffering=0)

    class Process:
        returncode = 0

        def poll(self) -> int:
            return 0

    process = Process()
    process.stdin, process.stdout = stdin, stdout  # type: ignore[attr-defined]
    child = exporter_process.ChildExporter("wandb", print)
    child._process, child._log = process, tmp_path / "log"  # type: ignore[assignment]
    child._log.write_bytes(b"")
    child._pipes = {pipe.fileno(): file_id(pipe.fileno()) for pipe in (stdin, stdout)}
    child.flush()
    size = own.stat().st_size
    assert size
    script = tmp_path / "script"
    taken = os.open(script, os.O_RDWR | os.O_CREAT)
    os.dup2(taken, stdin.fileno())
    with pytest.raises(ExporterGoneError, match="the script closed the pipe"):
        child.flush()
    child.forget()
    assert own.stat().st_size == size
    assert script.read_bytes() == b""
    assert os.write(stdin.fileno(), b"checkpoint") == 10, "the script's descriptor was closed"
    stdin.close()
    os.close(taken)


CLOSES = """
import os
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for step in range(70):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).pow(2).mean().backward()
    optimizer.step()
    if step == 10:
        os.closerange(3, 256)
        for number in range(40):
            os.write(os.open(f"own.{number}", os.O_RDWR | os.O_CREAT), b"checkpoint")
"""


def test_a_script_that_closes_all_descriptors_keeps_its_files_and_its_record(tmp_path: Path) -> None:
    run_script(tmp_path, CLOSES)
    for number in range(40):
        assert (tmp_path / f"own.{number}").read_bytes() == b"checkpoint"
    run = open_run(tmp_path / "runs" / "run")
    assert run.ended == "finished"
    assert len(run.window()) == 70
