"""An exporter in a process of its own: what happens to it when it hangs, dies or is left, and what it never touches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("wandb")

from test_wandb import rows

from builders import TENSORS, records
from feeding import feed
from scripts import Started, write
from steadytrain.exporters import exporter_process, exporter_queue, run_exports
from steadytrain.exporters.run_exports import Exports
from waiting import until

PATIENCE_S = 120.0
TESTS = Path(__file__).parents[1]

# A library that hangs where the test says.
HANGING = """
import os, time
class Settings:
    def __init__(self, **settings): pass
def init(**settings):
    while True: time.sleep(1)
"""

# A script that starts a W&B run of its own after ours has begun: it must get its own.
STARTS_LATER = """
import sys
from feeding import followed

for record in followed(sys.argv[1:]):
    if record.step == 50:
        import wandb
        run = wandb.init(project="mine", name="theirs", mode="offline", dir="mine",
                         settings=wandb.Settings(console="off", silent=True))
    if record.step >= 50:
        run.log({"loss": record.scalars["loss"]})
print(run.name, run.project)
run.finish()
"""

ENDLESS = """
import time
from pathlib import Path
from builders import TENSORS, records
from feeding import handed_over
from steadytrain.exporters import exporter_queue as outlet
from steadytrain.exporters.run_exports import Exports

outlet.FLUSH_EVERY_S = 0.05
Path("run").mkdir()
sink = Exports(["wandb"], tell=print)
sink.open(Path("run").absolute(), {"name": "run"})
for record in records(50):
    sink.step("main", record, TENSORS)
handed_over(sink)
print("sent", flush=True)
time.sleep(600)
"""


def wait_for_end(process: subprocess.Popen[bytes]) -> int:
    return process.wait(PATIENCE_S)


def ours(folder: Path) -> list[int]:
    """The processes of exporters that write into a run under ``folder``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if b"steadytrain.exporters.exporter_process" in (entry / "cmdline").read_bytes():
                log = os.readlink(entry / "fd" / "2")
                found += [int(entry.name)] if log.startswith(str(folder)) else []
        except OSError:
            continue
    return found


def test_a_child_that_is_not_done_when_nobody_waits_any_longer_finishes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough to say everything, which takes milliseconds, and shorter than what wandb takes to be imported and end.
    monkeypatch.setattr(run_exports, "CLOSE_WAIT_S_MAX", 0.5)
    told: list[str] = []
    feed(tmp_path / "run", ["wandb"], told=told)
    log = tmp_path / "run" / "wandb.log"
    assert told == [f"note: what is left for wandb is still being sent; what fails is in {log}"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("steadytrain-")]
    (process,) = exporter_process._left
    assert wait_for_end(process) == 0
    assert len(rows(tmp_path / "run")) > 100


@pytest.mark.parametrize("much", [False, True], ids=["little-to-say", "more-than-it-takes"])
def test_a_library_that_hangs_holds_nobody_up_and_is_ended(
    much: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, HANGING, "wandb.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(run_exports, "CLOSE_WAIT_S_MAX", 0.5)
    monkeypatch.setattr(exporter_process, "FINISH_S_MAX", 0.5)
    monkeypatch.setattr(exporter_queue, "FLUSH_EVERY_S", 0.001)
    monkeypatch.setattr(exporter_queue, "ROWS_WAITING_MAX", 1 << 16)  # a busy machine would drop what fills the pipe
    told: list[str] = []
    sink = Exports(["wandb"], tell=told.append)
    sink.open(tmp_path, {"name": "run"})
    for record in records(20_000 if much else 4):
        sink.step("main", record, TENSORS)
    sink.close("finished")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("steadytrain-")]
    if much:  # it has not even listened: killed
        assert told[0].startswith("warning: nothing more goes to wandb: its process is gone")
        assert all("rows of scalars were dropped" in line for line in told[1:])
    else:
        assert told == [f"note: what is left for wandb is still being sent; what fails is in {tmp_path / 'wandb.log'}"]
        (process,) = exporter_process._left
        assert wait_for_end(process) == 1
    assert not ours(tmp_path)


def test_a_child_that_dies_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter_queue, "FLUSH_EVERY_S", 0.02)
    told: list[str] = []
    sink = Exports(["wandb"], tell=told.append)
    sink.open(tmp_path, {"name": "run"})
    until((tmp_path / "wandb").exists)
    os.kill(min(ours(tmp_path)), signal.SIGKILL)  # the others are what it is about to start
    for record in records(1000):
        sink.step("main", record, TENSORS)
        time.sleep(0.01)
        if told:
            break
    sink.close("finished")
    assert told == [f"warning: nothing more goes to wandb: its process is gone; see {tmp_path / 'wandb.log'}"]


@pytest.mark.slow
def test_a_library_s_own_error_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "nonsense")
    monkeypatch.setattr(run_exports, "CLOSE_WAIT_S_MAX", PATIENCE_S)
    told: list[str] = []
    feed(tmp_path / "run", ["wandb"], told=told)
    assert len(told) == 1
    assert "to wandb: " in told[0]
    assert "nonsense" in told[0]
    assert "\n" not in told[0]


@pytest.mark.slow
def test_a_run_that_the_script_begins_after_ours_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    write(tmp_path, STARTS_LATER)
    ended = Started([sys.executable, "script.py", "wandb"], tmp_path).end()
    # On a busy machine a note says before it that the rest is still being sent.
    assert (ended.status, ended.out.splitlines()[-1]) == (0, "theirs mine"), ended.err
    assert [row["_step"] for row in rows(tmp_path / "mine")] == list(range(71))
    assert not any("steadytrain/step" in row for row in rows(tmp_path / "mine"))
    assert [row["step"] for row in rows(tmp_path / "run") if "loss" in row] == list(range(1, 121))


@pytest.mark.slow
def test_a_killed_script_leaves_a_whole_run_and_no_process(tmp_path: Path) -> None:
    write(tmp_path, ENDLESS)
    script = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "sent\n"
    assert len(ours(tmp_path)) == 1
    script.kill()
    script.wait()
    script.stdout.close()
    until(lambda: not ours(tmp_path))
    assert [row["step"] for row in rows(tmp_path / "run") if "loss" in row] == list(range(1, 51))
