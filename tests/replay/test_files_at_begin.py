"""A relaunched script that resumes by itself finds the checkpoints that the recorded run began with."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import builders
from scripts import call, run_script
from steadytrain.replay.file_mirror import FileMirror
from steadytrain.replay.files_at_begin import FilesAtBegin, files_at_begin
from steadytrain.storage.checkpoint_pins import Identity

RESUMES = """
import os, sys, torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 3)
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
step = 0
if os.path.exists("last.pt"):
    kept = torch.load("last.pt")
    net.load_state_dict(kept["net"])
    optimizer.load_state_dict(kept["optimizer"])
    step = kept["step"]
while step < int(sys.argv[1]):
    step += 1
    rows = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    if step == 13:
        rows[0, 0] = float("nan")
    loss = net(rows).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 0:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "last.pt")
"""


@pytest.mark.slow
def test_checkpoints_that_the_recorded_run_wrote_are_not_found(tmp_path: Path) -> None:
    ran = run_script(tmp_path, RESUMES, arguments=("20",))
    assert ran.status == 70
    before = (tmp_path / "last.pt").read_bytes()
    replayed = call("replay", ran.run_dir, folder=tmp_path)
    assert "12 of 12 steps, to the last bit" in replayed.stdout, replayed.stderr
    assert f"without 1 checkpoint that the recorded run wrote: {tmp_path / 'last.pt'}" in replayed.stderr
    located = call("locate", ran.run_dir, folder=tmp_path)
    assert "rows[0, 0] = float" in located.stdout
    assert (tmp_path / "last.pt").read_bytes() == before


@pytest.mark.slow
def test_a_checkpoint_that_was_read_and_overwritten_is_found_as_it_was(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(RESUMES))
    subprocess.run([sys.executable, str(script), "5"], cwd=tmp_path, check=True)
    read = (tmp_path / "last.pt").read_bytes()
    ran = run_script(tmp_path, RESUMES, arguments=("20",))
    assert ran.status == 70
    before = (tmp_path / "last.pt").read_bytes()
    assert before != read
    (kept,) = (ran.run_dir / "checkpoints").glob("read*/last.pt")
    assert kept.read_bytes() == read
    replayed = call("replay", ran.run_dir, folder=tmp_path)
    assert "8 of 8 steps, to the last bit" in replayed.stdout, replayed.stderr
    assert "with the checkpoint that the recorded run read, as it was then" in replayed.stderr
    assert (tmp_path / "last.pt").read_bytes() == before
    assert kept.read_bytes() == read


def test_nothing_is_kept_of_a_checkpoint_that_the_run_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(RESUMES))
    subprocess.run([sys.executable, str(script), "5"], cwd=tmp_path, check=True)
    ran = run_script(tmp_path, RESUMES, arguments=("7",))
    assert ran.status == 0
    assert not list((ran.run_dir / "checkpoints").glob("read*/*"))
    assert (tmp_path / "last.pt").stat().st_nlink == 1
    assert files_at_begin(ran.run_dir) == FilesAtBegin()


def known(path: Path) -> list[int]:
    found = Identity.of(path)
    assert found is not None
    return [found.size, found.changed_ns]


def saved(*paths: Path) -> dict[str, Any]:
    return {
        "step": 4,
        "path": str(paths[0].parent if len(paths) > 1 else paths[0]),
        "files": dict.fromkeys(map(str, paths)),
    }


def test_a_folder_of_one_step_is_hidden_whole_if_the_run_made_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    places = [tmp_path / "out" / "checkpoint-4", tmp_path / "models", tmp_path / "old-2"]
    for place in places:
        place.mkdir(parents=True)
    (places[2] / "notes.txt").write_text("of an earlier run")
    os.utime(places[2] / "notes.txt", (1, 1))
    files = [place / "optimizer.pt" for place in places]
    for file in files:
        file.write_text("weights")
    builders.quiet_run(run, facts={**builders.FACTS, "saved": [saved(file) for file in files]})
    os.utime(run / "run.json", (2, 2))
    assert files_at_begin(run).hidden == (str(places[0]), str(files[1]), str(files[2]))


def test_a_read_file_is_not_hidden_and_lost_if_nothing_kept_it(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "last.pt"
    file.write_text("first")
    read = {str(file): {"file": known(file), "held": None}}
    builders.quiet_run(run, facts={**builders.FACTS, "saved": [saved(file)], "read": read})
    assert files_at_begin(run) == FilesAtBegin()
    file.write_text("another")
    found = files_at_begin(run)
    assert (found.hidden, found.lost) == ((), (str(file),))
    assert "has changed since" in found.sentences()[0]


@pytest.mark.parametrize("held", ["../../secret", "/etc/passwd", "checkpoints/none", 7, ""])
def test_a_pin_outside_of_the_run_is_not_read(held: object, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of another")
    run, file = tmp_path / "runs" / "run", tmp_path / "last.pt"
    file.write_text("now")
    builders.quiet_run(run, facts={**builders.FACTS, "read": {str(file): {"file": [1, 1], "held": held}}})
    assert not files_at_begin(run).instead


@pytest.mark.parametrize(
    "facts", [{"saved": 3}, {"saved": [None, {"files": 1}, {"path": "relative"}]}, {"read": [1]}, {"read": {"a": 2}}]
)
def test_facts_of_another_form_say_nothing(facts: dict[str, Any], tmp_path: Path) -> None:
    builders.quiet_run(tmp_path / "run", facts={**builders.FACTS, **facts})
    assert files_at_begin(tmp_path / "run") == FilesAtBegin()
    assert files_at_begin(tmp_path) == FilesAtBegin()


def test_a_mirror_shows_the_files_at_the_begin_until_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "hidden.pt").write_text("late")
    (tmp_path / "read.pt").write_text("late")
    (tmp_path / "kept.pt").write_text("early")
    mirror = FileMirror(tmp_path / "mirror", writable=())
    mirror.begin_with([str(tmp_path / "hidden.pt")], {str(tmp_path / "read.pt"): str(tmp_path / "kept.pt")})
    assert not os.path.exists(mirror.reading(tmp_path / "hidden.pt"))
    assert {entry.name for entry in mirror.entries(tmp_path)} >= {"read.pt", "kept.pt"}
    assert "hidden.pt" not in {entry.name for entry in mirror.entries(tmp_path)}
    assert Path(mirror.reading(tmp_path / "read.pt")).read_text() == "early"
    place = Path(mirror.writing(tmp_path / "read.pt"))
    assert place.read_text() == "early"
    place.write_text("own")
    assert Path(mirror.reading(tmp_path / "read.pt")).read_text() == "own"
    assert (tmp_path / "kept.pt").read_text() == "early"


def seen(mirror: FileMirror, folder: Path) -> set[str]:
    return {entry.name for entry in mirror.entries(folder)}


def test_a_file_that_is_gone_since_is_listed_and_can_be_removed_and_renamed(tmp_path: Path) -> None:
    (tmp_path / "kept.pt").write_text("early")
    gone, other = tmp_path / "step_20.pt", tmp_path / "step_30.pt"
    mirror = FileMirror(tmp_path / "mirror", writable=())
    mirror.begin_with([], {str(gone): str(tmp_path / "kept.pt")})
    assert "step_20.pt" in seen(mirror, tmp_path)
    mirror.rename(gone, other)
    assert seen(mirror, tmp_path) & {"step_20.pt", "step_30.pt"} == {"step_30.pt"}
    assert Path(mirror.reading(other)).read_text() == "early"
    mirror.begin_with([], {str(gone): str(tmp_path / "kept.pt")})
    again = FileMirror(tmp_path / "another", writable=())
    again.begin_with([], {str(gone): str(tmp_path / "kept.pt")})
    again.remove(gone)
    assert "step_20.pt" not in seen(again, tmp_path)
    assert not os.path.exists(again.reading(gone))
    with pytest.raises(FileNotFoundError):
        again.remove(gone)
    Path(again.writing(gone)).write_text("own")
    again.remove(gone)
    assert "step_20.pt" not in seen(again, tmp_path)
    assert (tmp_path / "kept.pt").read_text() == "early"
