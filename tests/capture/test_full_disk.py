"""Fail open: a full disk or a folder that cannot be written never stops a run."""

from __future__ import annotations

import errno
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fail_open_for_users import _as_for_users  # noqa: F401 (an autouse fixture)
from torch import nn

import builders
import steadytrain
from parameters import long
from scripts import Ended, finished, run_script, write_script
from scripts import bare as plain_python
from steadytrain.capture.incident import freeze, incident
from steadytrain.capture.step.observers import StepObserver
from steadytrain.core.incident import Incident
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.stopped_recording import read_stopped
from watching import watching

# -- disks -------------------------------------------------------------------------------------------------------------

TRAINS = """
import hashlib
import os
import sys
import torch
from torch import nn

bad_step, fill_at = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
hidden = int(os.environ.get("HIDDEN", "256"))
model = nn.Sequential(nn.Linear(64, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

def digest():
    values = b"".join(value.detach().numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(values).hexdigest()

before = ""
try:
    for step in range(1, 141):
        if step == fill_at:
            exec(sys.argv[3])
        before = digest()
        loss = model(torch.randn(32, 64)).pow(2).mean()
        if step == bad_step:
            loss = loss * float("nan")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
finally:
    print(step, before, digest())
"""

FILL = """
with open(os.environ["DISK"] + "/filler", "wb", buffering=0) as file:
    try:
        while file.write(bytes(512)):
            pass
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of one megabyte, where this machine lets us mount one."""
    folder = tmp_path_factory.mktemp("disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def disk(small_disk: Path) -> Path:
    for path in sorted(small_disk.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    return small_disk


def run_on(disk: Path, folder: Path, *, bad_step: int, fill_at: int) -> Ended:
    """A run whose folder is on ``disk``, which the script fills at that step.

    Without snapshots: one that is given up there takes its half file away, and then what comes may fit after all.
    """
    return run_script(
        folder,
        TRAINS,
        "--rewind-mb=0",
        arguments=(str(bad_step), str(fill_at), FILL),
        environment={"DISK": str(disk)},
        runs_dir=disk / "runs",
        fails=True,
    )


def ends(out: str) -> tuple[int, bool]:
    """The last step, and whether it left the model as it was."""
    step, before, after = out.split()
    return int(step), before == after


@pytest.mark.slow
@pytest.mark.parametrize("fill_at", [long(1), 20])
def test_a_full_disk_does_not_stop_a_healthy_run(fill_at: int, disk: Path, tmp_path: Path) -> None:
    plain = finished(plain_python(write_script(tmp_path, TRAINS), "0", "0", ""))
    outcome = run_on(disk, tmp_path, bad_step=0, fill_at=fill_at)
    assert (plain.returncode, outcome.status) == (0, 0), outcome.err
    assert outcome.out == plain.stdout
    recording = [line for line in outcome.warnings if "recording to the run folder failed" in line]
    assert len(recording) == 1
    assert "No space left on device" in outcome.err or "disk" in outcome.err
    if fill_at == 20:
        assert outcome.run.window().steps.tolist()[:18] == list(range(1, 19))
        assert read_stopped(outcome.run_dir) is not None


@pytest.mark.slow
@pytest.mark.parametrize("fill_at", [1, long(10)])
def test_a_bad_step_is_refused_on_a_full_disk(fill_at: int, disk: Path, tmp_path: Path) -> None:
    outcome = run_on(disk, tmp_path, bad_step=10, fill_at=fill_at)
    assert outcome.status == 70, outcome.err
    assert ends(outcome.out) == (10, True)
    assert "STOPPED before the update of step 10" in outcome.err
    assert "bundle               none could be written; see the warning above" in outcome.err
    assert any("writing the incident bundle failed" in line for line in outcome.warnings)


@pytest.mark.slow
def test_the_recorded_steps_make_room_for_the_incident(disk: Path, tmp_path: Path) -> None:
    arguments = ("60", "60", FILL)
    outcome = run_script(
        tmp_path, TRAINS, arguments=arguments, environment={"DISK": str(disk)}, runs_dir=disk / "runs", fails=True
    )
    assert outcome.status == 70, outcome.err
    assert ends(outcome.out) == (60, True)
    (path,) = outcome.run.incidents
    bundle = open_bundle(path)
    assert bundle.incident.step == 60
    assert "the disk is full: the recorded steps were deleted to make room" in outcome.err
    assert not list(outcome.run.path.rglob(".stage-*"))


@pytest.mark.slow
def test_a_state_that_does_not_fit_is_said_not_to_be_kept(tmp_path: Path) -> None:
    """A limit on file size, as a quota: everything but the model's weights can be written."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"
    script = write_script(tmp_path, limit + textwrap.dedent(TRAINS))
    outcome = run_script(tmp_path, script, arguments=("10", "0", ""), environment={"HIDDEN": "4096"}, fails=True)
    assert outcome.status == 70, outcome.err
    assert any("writing model and optimizer state failed" in line for line in outcome.warnings), outcome.err
    (path,) = outcome.run.incidents
    bundle = open_bundle(path)
    assert bundle.incident.state_note.startswith("not kept: it could not be written")
    assert not (path / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("bad_step", [0, 10])
def test_a_folder_that_cannot_be_made_does_not_stop_the_run(bad_step: int, tmp_path: Path) -> None:
    runs_dir = Path("/proc/steadytrain-runs")
    outcome = run_script(tmp_path, TRAINS, arguments=(str(bad_step), "0", ""), runs_dir=runs_dir, fails=True)
    assert outcome.status == (70 if bad_step else 0), outcome.err
    assert ends(outcome.out) == (bad_step or 140, bool(bad_step))
    assert len([line for line in outcome.warnings if "recording to the run folder failed" in line]) == 1
    if bad_step:
        assert "none could be written" in outcome.err
    else:
        assert len(outcome.warnings) == 2
        assert "no folder can be made in /proc/steadytrain-runs" in outcome.warnings[0]


DELETE = "import shutil; shutil.rmtree(os.environ['GONE'])"


@pytest.mark.slow
@pytest.mark.parametrize("bad_step", [0, 30])
def test_a_run_folder_that_is_deleted_is_said_to_be_gone_and_an_incident_is_kept(bad_step: int, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    arguments, environment = (str(bad_step), "20", DELETE), {"GONE": str(folder)}
    outcome = run_script(tmp_path, TRAINS, arguments=arguments, environment=environment, runs_dir=folder, fails=True)
    assert outcome.status == (70 if bad_step else 0), outcome.err
    assert ends(outcome.out) == (bad_step or 140, bool(bad_step))
    assert not outcome.warnings
    if bad_step:
        (bundle,) = folder.glob("*/incidents/*")
        assert open_bundle(bundle).incident.step == 30
    else:
        assert "it was deleted or replaced during the run" in outcome.err


def test_a_bundle_that_has_no_room_is_written_again_smaller() -> None:
    tried: list[object] = []

    class Observer(StepObserver):
        def free_disk(self) -> bool:
            tried.append("freed")
            return True

    def full_until(last: int, error: Exception) -> Callable[[int], Incident]:
        def write(attempt: int) -> Incident:
            tried.append(attempt)
            if attempt < last:
                raise error
            return builders.incident()

        return write

    full = OSError(errno.ENOSPC, "No space left on device")
    assert incident._with_room(full_until(2, full), Observer()).step == builders.incident().step
    assert tried == [0, "freed", 1, 2]
    with pytest.raises(OSError, match="No space"):
        incident._with_room(full_until(3, full), Observer())
    tried.clear()
    with pytest.raises(OSError, match="denied"):
        incident._with_room(full_until(1, OSError(errno.EACCES, "denied")), Observer())
    assert tried == [0]


def test_the_state_is_planned_again_when_the_recording_has_made_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, write_bundle = [0, 1 << 30], freeze.write_bundle

    def full_at_first(*arguments: Any, **options: Any) -> None:
        if free.pop(0) == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_bundle(*arguments, **options)

    monkeypatch.setattr(freeze, "free_bytes", lambda folder: free[0])
    monkeypatch.setattr(freeze, "write_bundle", full_at_first)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(tmp_path / "run", "skip"):
        model(torch.full((2, 4), torch.nan)).sum().backward()
        optimizer.step()
    (bundle,) = (tmp_path / "run" / "incidents").iterdir()
    assert open_bundle(bundle).incident.state_note.startswith("kept as it was before step 1")
    assert (bundle / "model.safetensors").exists()


def test_a_skip_is_told_though_its_bundle_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(freeze, "write_bundle", full)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadytrain.watch(model, optimizer, policy="skip", runs_dir=tmp_path, name="run", to=("none",)):
        model(torch.full((2, 4), torch.nan)).sum().backward()
        optimizer.step()
    told = capsys.readouterr().err
    assert "SKIPPED the update of step 1" in told
    assert "writing the incident bundle failed" in told
