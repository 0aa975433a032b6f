"""The tape and the snapshots of a run: bounded, whole or not there at all, and never in the way of training."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import replaying
from fingerprint import digest as fingerprint
from fingerprint import random_digest, seed
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.settings import Settings
from steadytrain.capture.snapshots import tape as tape_module
from steadytrain.capture.snapshots.digests import digest
from steadytrain.capture.snapshots.rewind import Rewind
from steadytrain.capture.snapshots.tape import Tape
from steadytrain.capture.snapshots.tape_steps import Call, TapeStep
from steadytrain.capture.step.input_recorder import PYTHON_STATE_BYTES, RandomState, record_call
from steadytrain.capture.step.watcher import Watcher
from steadytrain.core.errors import UsageError
from steadytrain.detection import run_recorder
from steadytrain.storage.bundle import open_bundle, seal
from steadytrain.storage.tape_files import find_recording, read_chunk, read_snapshot, size_bytes

KILLED_AFTER = 90


def loop(steps: int = 12, *, nan_at: int | None = None) -> nn.Module:
    """A few steps of something that draws, drops and normalises."""
    seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        x = torch.randn(5, 6)
        if step == nan_at:
            x[0, 0] = float("nan")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def watched(folder: Path, run: Callable[[], Any], *, ended: str = "finished", **settings: Any) -> tuple[Any, list[str]]:
    """``run`` under the recorder of an ordinary watch; what it gave, and the notes."""
    watcher = Watcher(
        Settings(run_dir=folder, run_name="run", policy="observe", **settings),
        tell=lambda text: None,
        record=run_recorder.recording(),
    )
    try:
        given = run()
    finally:
        watcher.close(ended=ended)
    return given, watcher.notes


def test_every_step_is_on_the_tape_and_every_digest_is_that_of_its_tensor(tmp_path: Path) -> None:
    recording = replaying.record(loop, tmp_path / "run", every=4)
    chunks = [read_chunk(chunk) for chunk in recording.chunks]
    assert [step["step"] for chunk in chunks for step in chunk["steps"]] == list(range(1, 13))
    for chunk in recording.chunks:
        assert {name: digest(tensor) for name, tensor in load_file(chunk.tensors).items()} == {
            name: name for name in load_file(chunk.tensors)
        }
    for shot in recording.snapshots:
        document = read_snapshot(shot)
        assert {name: digest(tensor) for name, tensor in load_file(shot.tensors).items()} == document["digests"]
    assert [shot.step for shot in recording.snapshots] == [1, 5, 9]


def test_a_run_with_a_snapshot_at_every_step_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    plain = fingerprint(list(loop().state_dict().values())), random_digest()
    states: list[Any] = []
    recording = replaying.record(lambda: states.append(loop().state_dict()), tmp_path / "run", every=1)
    assert (fingerprint(list(states[0].values())), random_digest()) == plain
    assert len(recording.snapshots) >= 3


def test_a_healthy_run_leaves_nothing_and_a_failed_one_all(tmp_path: Path) -> None:
    watched(tmp_path / "healthy", loop)
    assert not list((tmp_path / "healthy").rglob("*.safetensors"))
    watched(tmp_path / "failed", loop, ended="failed")
    assert find_recording(tmp_path / "failed").starts() == [2]
    watched(tmp_path / "kept", loop, keep_rewind=True)
    assert find_recording(tmp_path / "kept").last_step == 12
    watched(tmp_path / "off", loop, rewind_bytes_max=0, ended="failed")
    assert find_recording(tmp_path / "off").chunks == ()


def test_an_incident_has_it_and_the_run_folder_not_any_more(tmp_path: Path) -> None:
    watched(tmp_path / "run", lambda: loop(nan_at=9))
    bundle = tmp_path / "run" / "incidents" / "step-000009"
    recording = find_recording(bundle)
    assert (recording.starts(), recording.last_step) == ([2], 9)
    assert not (tmp_path / "run" / "tape").exists()
    assert json.loads((bundle / "replay" / "replay.json").read_text())["steps"] == [1, 9]
    open_bundle(bundle)


def test_a_recording_in_a_bundle_that_was_touched_is_refused(tmp_path: Path) -> None:
    watched(tmp_path / "run", lambda: loop(nan_at=9))
    bundle = tmp_path / "run" / "incidents" / "step-000009"
    chunk = find_recording(bundle).chunks[0]
    text = chunk.document.read_text()
    chunk.document.write_text(text.replace('"skipped":false', '"skipped":true '))
    with pytest.raises(UsageError, match="checksum"):
        open_bundle(bundle)
    chunk.document.write_text(text)
    os.truncate(chunk.tensors, chunk.tensors.stat().st_size - 1)
    with pytest.raises(UsageError, match="truncated"):
        open_bundle(bundle)
    chunk.tensors.unlink()
    open_bundle(bundle)  # what is gone cannot mislead: the rest of the bundle is as good as ever
    assert find_recording(bundle).chunks == ()
    manifest = json.loads((bundle / "manifest.json").read_text())
    for name in ("replay/../../../secret", "other/file.json", "/etc/passwd", "replay//x"):
        (bundle / "manifest.json").write_text(json.dumps({**manifest, "files": {name: {"bytes": 1}}}))
        with pytest.raises(UsageError, match="outside"):
            open_bundle(bundle)


def test_a_link_inside_the_recording_is_not_followed(tmp_path: Path) -> None:
    watched(tmp_path / "run", lambda: loop(nan_at=9))
    bundle = tmp_path / "run" / "incidents" / "step-000009"
    (bundle / "replay" / "tape").rename(tmp_path / "elsewhere")
    (bundle / "replay" / "tape").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="missing"):
        open_bundle(bundle)


def test_what_is_not_whole_is_not_there(tmp_path: Path) -> None:
    recording = replaying.record(loop, tmp_path / "run", every=4)
    shot, chunk = recording.snapshots[-1], recording.chunks[0]
    shot.folder.rename(shot.folder.with_name(shot.folder.name + ".part"))
    assert [one.step for one in find_recording(tmp_path / "run").snapshots] == [1, 5]
    chunk.document.rename(chunk.document.with_name(chunk.document.name + ".part"))
    assert find_recording(tmp_path / "run").chunks == ()
    os.truncate(recording.snapshots[0].tensors, 100)
    with pytest.raises(UsageError, match="truncated"):
        read_snapshot(recording.snapshots[0])


@pytest.mark.slow
def test_a_killed_run_can_be_replayed_up_to_its_last_chunk(tmp_path: Path) -> None:
    """The process kills itself while its threads write: a snapshot is taken after every step."""
    source = f"""
        import os, signal, sys
        sys.path[:0] = {[str(Path(__file__).parents[1]), str(Path(__file__).parent)]!r}
        import torch
        from pathlib import Path
        import replaying, test_tape
        from steadytrain.capture.snapshots import tape
        from steadytrain.capture.snapshots.rewind import Rewind
        from steadytrain.capture.snapshots.snapshots import Snapshots
        from steadytrain.capture.settings import Settings
        from steadytrain.detection import run_recorder
        from steadytrain.capture.step.watcher import Watcher
        torch.set_num_threads(1)
        tape.CHUNK_STEPS_MAX = 5
        shots = Snapshots(1 << 30, every_steps=1, cost_share=1e9)
        recorder = Rewind(1 << 30, note=print, keep=True, snapshots=shots)
        step_ended = recorder.step_ended
        def killed(stream, folder):
            step_ended(stream, folder)
            if stream.step == {KILLED_AFTER}:
                os.kill(os.getpid(), signal.SIGKILL)
        recorder.step_ended = killed
        record = run_recorder.recording()
        Watcher(Settings(run_dir=Path("run"), run_name="run"), tell=print, record=record, observer=recorder)
        test_tape.loop({2 * KILLED_AFTER})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], cwd=tmp_path, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    recording = find_recording(tmp_path / "run")
    assert recording.last_step is not None
    assert 0 < recording.last_step <= KILLED_AFTER
    for shot in recording.snapshots:
        document = read_snapshot(shot)
        assert {name: digest(tensor) for name, tensor in load_file(shot.tensors).items()} == document["digests"]
    for first in (recording.starts()[0], recording.starts()[-1]):
        result = replaying.replay(lambda: loop(2 * KILLED_AFTER), recording, first)  # type: ignore[arg-type]
        assert not isinstance(result, str), result
        assert (result.first_difference, result.until_step) == (None, recording.last_step)


def test_no_disk_is_told_once_and_training_goes_on_as_it_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "reraise", False)
    monkeypatch.setattr(tape_module, "CHUNK_STEPS_MAX", 2)
    plain = fingerprint(list(loop(60).state_dict().values())), random_digest()
    (tmp_path / "run").mkdir()
    for name in ("tape", "snapshots"):
        (tmp_path / "run" / name).write_text("a file where the folder should be")
    model, notes = watched(tmp_path / "run", lambda: loop(60), ended="failed")
    assert (fingerprint(list(model.state_dict().values())), random_digest()) == plain
    assert 1 <= len(notes) <= 2
    assert all("no more snapshots" in note or "no tape" in note for note in notes)


def test_memory_stays_within_the_bound_when_the_disk_is_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 1 << 20
    monkeypatch.setattr(tape_module, "RING_BYTES_MAX", bound)
    monkeypatch.setattr(tape_module, "STEP_BYTES_MAX", bound // 2)
    tape = Tape(1 << 30)
    for number in range(1, 200):
        tape.fetched(0, torch.zeros(1 << 15))  # 128 kB
        tape._forming.step = number
        tape.step_ended(tmp_path)
        assert tape.memory_bytes <= bound + (1 << 17)
    tape.fetched(0, torch.zeros(1 << 18))
    tape._forming.step = 200
    tape.step_ended(tmp_path)
    tape.close(write=True)
    assert tape.failure is None
    steps = [step for chunk in find_recording(tmp_path).chunks for step in read_chunk(chunk)["steps"]]
    assert len(steps) + tape.dropped == 200
    assert "over the bound" in steps[-1]["left_out"]


@pytest.mark.parametrize("keep_head", [False, True])
def test_disk_stays_within_the_budget(keep_head: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape_module, "CHUNK_BYTES", 1 << 16)
    budget = 1 << 19
    tape = Tape(budget)
    tape.keep_head = keep_head
    for number in range(1, 60):
        tape.fetched(0, torch.full((1 << 12,), float(number)))  # 16 kB, each another one
        tape._forming.step = number
        tape.step_ended(tmp_path)
        tape.flush()
        assert size_bytes(tmp_path) <= budget + (1 << 17)
    tape.close(write=True)
    assert tape.failure is None
    recording = find_recording(tmp_path)
    assert recording.last_step == 59
    assert 1 < recording.reaches(1) < 20 if keep_head else recording.chunks[0].first > 1
    assert recording.reaches(50) == 59


def test_what_cannot_be_kept_is_named(tmp_path: Path) -> None:
    class Pair:
        def __init__(self, x: Tensor) -> None:
            self.x = x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, pair: Pair, scale: float) -> Tensor:
            return self.layer(pair.x) * scale

    def own() -> None:
        seed(0)
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            model(Pair(torch.randn(3, 2)), 0.5).mean().backward()
            optimizer.step()

    recording = replaying.record(own, tmp_path / "run", every=2)
    call = read_chunk(recording.chunks[0])["steps"][0]["calls"][0]
    assert len(call["not_kept"]) == 1
    assert call["not_kept"][0].endswith("Pair")
    result = replaying.replay(own, recording, 6)
    assert not isinstance(result, str)
    assert result.first_difference is not None, "the gradients of the step before are in every gradient"
    assert result.first_difference.phase == "backward"
    for named in ("Pair", "gradients carry over"):
        assert any(named in note for note in result.notes), result.notes


def test_sealing_again_does_not_lose_the_recording(tmp_path: Path) -> None:
    watched(tmp_path / "run", lambda: loop(nan_at=9))
    bundle = tmp_path / "run" / "incidents" / "step-000009"
    before = json.loads((bundle / "manifest.json").read_text())
    seal(bundle, "incident.json")
    assert json.loads((bundle / "manifest.json").read_text()) == before
    assert any(name.startswith("replay/snapshots/") for name in before["files"])


def test_a_run_without_a_follower_that_rewinds_has_no_thread_of_it(tmp_path: Path) -> None:
    watcher = Watcher(
        Settings(run_dir=tmp_path / "run", run_name="run", rewind_bytes_max=0),
        tell=print,
        record=run_recorder.recording(),
    )
    assert not isinstance(watcher.observer, Rewind)
    watcher.close(ended="finished")


def test_random_states_count_as_memory_of_a_step_once() -> None:
    begin = RandomState.take()
    torch.rand(1)
    drawn, same = RandomState.take(), RandomState.take()
    random.random()
    both = RandomState.take()
    assert (drawn.size_bytes, same.size_bytes) == (begin.torch.nbytes, 0)
    assert both.size_bytes == PYTHON_STATE_BYTES
    batch = replace(record_call(nn.Identity(), (torch.zeros(3),), {}, None), random=drawn)
    call = Call.of(batch)
    call.random_after = both
    assert TapeStep(calls=[call]).size_bytes == 12 + drawn.size_bytes + PYTHON_STATE_BYTES
