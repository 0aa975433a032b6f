"""A recording that stopped is said in the run folder, in `show` and in its JSON."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import builders
from steadytrain.cli.main import commands
from steadytrain.storage import run_folder, stopped_recording
from steadytrain.storage.stopped_recording import STOPPED_FILE, read_stopped, write_stopped


def shown(run: Path, *options: str) -> str:
    return CliRunner().invoke(commands, ["show", str(run), *options], catch_exceptions=False).stdout


def test_show_says_that_the_recording_stopped_and_why(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    assert json.loads(shown(run, "--json"))["recording_stopped"] is None
    write_stopped(run, step=7, why="OSError: [Errno 28] No space left on device")
    why = "OSError: [Errno 28] No space left on device"
    assert json.loads(shown(run, "--json"))["recording_stopped"] == {"step": 7, "why": why}
    assert "The recording of this run stopped at step 7" in " ".join(shown(run).split())


def test_a_disk_that_takes_a_name_alone_says_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, file: int, *_: object, **__: object) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            stopped_recording.os.close(self.file)

        def write(self, _: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stopped_recording, "open", Full, raising=False)
    write_stopped(tmp_path, step=7, why="full")
    assert (tmp_path / STOPPED_FILE).read_bytes() == b""
    assert read_stopped(tmp_path) == {"step": None, "why": None}


@pytest.mark.parametrize("text", ["[]", "{", '{"step": "x", "why": 3}'])
def test_a_damaged_note_is_one_without_words(text: str, tmp_path: Path) -> None:
    (tmp_path / STOPPED_FILE).write_text(text)
    assert read_stopped(tmp_path) == {"step": None, "why": None}


def test_a_disk_without_room_for_a_name_says_it_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All inodes are in use until the index gives its own files back."""
    full = [True]

    def noting(run: Path, *, step: int | None, why: str) -> None:
        if not full[0]:
            write_stopped(run, step=step, why=why)

    monkeypatch.setattr(run_folder, "write_stopped", noting)
    writer = run_folder.RunWriter(tmp_path / "run", {"name": "run"})
    writer.stop(7, "no space left")
    assert read_stopped(tmp_path / "run") is None
    full[0] = False
    writer.close()
    assert read_stopped(tmp_path / "run") == {"step": 7, "why": "no space left"}
