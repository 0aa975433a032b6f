"""A SLURM job: its facts, the signals by which it ends, and the run that a restart goes on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import builders
from scripts import Started, call, command, run_script, write_script
from steadytrain.attach.slurm_job import earlier_run, given_name, job_here, shared_name
from steadytrain.report import slurm
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.storage.signal_notes import signals_of

JOB = {
    "SLURM_JOB_ID": "123",
    "SLURM_ARRAY_TASK_ID": "4",
    "SLURM_ARRAY_JOB_ID": "120",
    "SLURMD_NODENAME": "node-7",
    "SLURM_JOB_NODELIST": "node-[7-8]",
    "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_END_TIME": "1900000000",
}

LOOP = """
import ctypes, os, signal, sys
{before}
import torch
from torch import nn
{after}
torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
begin = torch.load("ck.pt")["step"] if os.path.exists("ck.pt") else 0
for step in range(begin + 1, 9):
    loss = net(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 0 and {saves}:
        torch.save({{"net": net.state_dict(), "step": step}}, "ck.pt")
    if step == 6 and not begin:
        {then}
print("end")
"""

# While this native call runs, no handler in Python can.
NATIVE = "; ".join(
    (
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL",
        "ctypes.PyDLL(None)['raise'](signal.SIGTERM)",
        "os._exit(9)",
    )
)


def run_job(
    folder: Path, *, then: str = "pass", before: str = "", after: str = "", saves: bool = True, restart: str = ""
) -> Any:
    script = write_script(folder, LOOP.format(then=then, before=before, after=after, saves=saves))
    environment = {**JOB, **({"SLURM_RESTART_COUNT": restart} if restart else {})}
    ended = Started(command("run", "--runs-dir", "runs", script.name), folder, environment=environment).end()
    assert not ended.failures, ended.err
    return ended


def newest(folder: Path) -> Run:
    return max((open_run(path) for path in (folder / "runs").iterdir()), key=lambda run: run.description["started"])


def by_restart(folder: Path, restart: int) -> Run:
    (run,) = [
        run for run in map(open_run, (folder / "runs").iterdir()) if run.description["slurm"]["restart"] == restart
    ]
    return run


def test_the_facts_of_a_job() -> None:
    assert job_here({}) is None
    assert job_here({"SLURM_JOB_ID": "x"}) is None
    assert job_here({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "no"}) == {"job": "7", "restart": 0}
    found = job_here({**JOB, "SLURM_RESTART_COUNT": "2"})
    assert found == {
        "job": "123",
        "array_job": "120",
        "array_index": "4",
        "step": "0",
        "task": "0",
        "node": "node-7",
        "nodes": "node-[7-8]",
        "tasks": 1,
        "restart": 2,
        "ends_at": 1900000000,
    }


def test_ranks_of_a_job_step_share_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert shared_name("train") is None  # four runs that do not know each other, such as a sweep
    monkeypatch.setenv("RANK", "3")
    assert shared_name("train") == "train-job123.0"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert shared_name("train") == "train-job123.0-restart1"
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert shared_name("train") is None


@pytest.mark.parametrize(
    ("environment", "shared", "name"),
    [
        ({}, False, "fixed"),
        ({"SLURM_RESTART_COUNT": "2"}, False, "fixed-restart2"),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, False, "fixed-task1"),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1", "SLURM_RESTART_COUNT": "1"}, True, "fixed-restart1"),
    ],
)
def test_a_given_name_does_not_collide(environment: dict[str, str], shared: bool, name: str) -> None:
    assert given_name("fixed", job_here({"SLURM_JOB_ID": "123", **environment}), shared=shared) == name
    assert given_name("fixed", None, shared=shared) == "fixed"


def test_a_signal_is_told_outside_of_a_job_too(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run", facts={})
    description = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**description, "process": "00000000-1", "process_start": 1}))
    assert slurm.sentence(open_run(run)) is None
    (run / "signals").mkdir()
    (run / "signals" / "SIGTERM-ends.txt").write_text('Current thread 0x1:\n  File "/x/train.py", line 41 in main\n')
    assert slurm.sentence(open_run(run)) == "The run was ended by SIGTERM at train.py:41."


@pytest.mark.slow
def test_a_job_that_is_ended_and_started_again_goes_on_with_its_run(tmp_path: Path) -> None:
    first = run_job(tmp_path, then=NATIVE)
    assert first.status == -signal.SIGTERM
    run = by_restart(tmp_path, 0)
    assert run.scalars().steps.tolist() == [1, 2, 3, 4, 5, 6]
    (note,) = signals_of(run.path)
    assert (note.signal, note.ended, note.place) == ("SIGTERM", True, "train.py:19")
    assert run.state == "killed"
    assert slurm.ending(run) == "ended by SIGTERM at train.py:19"
    why = "SLURM preemption, requeue, time limit or scancel; `sacct -j 123 -o State,ExitCode` says which."
    assert slurm.sentence(run) == f"The run was ended by SIGTERM at train.py:19: {why}"
    (note_file,) = (run.path / "signals").glob("SIGTERM*")
    note_file.rename(note_file.with_name(note_file.name.replace("SIGTERM", "SIGUSR1")))
    assert "where `--signal` asks for it" in str(slurm.sentence(run))
    note_file.with_name(note_file.name.replace("SIGTERM", "SIGUSR1")).rename(note_file)
    limit = {**run.description["slurm"], "ends_at": int(note.time) + 60}
    at_limit = replace(run, description={**run.description, "slurm": limit})
    assert str(slurm.sentence(at_limit)).endswith(": at the time limit of SLURM job 123.")
    assert slurm.job_fact(run.description) == "job 123, array index 4, node node-7"

    second = run_job(tmp_path, then=NATIVE, restart="1")
    assert second.status == 0
    assert f"SLURM has started job 123 again (restart 1): this run continues {run.name}" in second.told
    assert "its last checkpoint, step 4" in second.told
    again = by_restart(tmp_path, 1)
    assert again.description["continues"]["step"] == 4
    assert again.scalars().steps.tolist() == [5, 6, 7, 8]
    assert not (again.path / "signals").exists()

    monkeypatched = {**JOB, "SLURM_RESTART_COUNT": "2"}
    job, argv = job_here(monkeypatched), run.description["argv"]
    found = earlier_run(job, argv, tmp_path / "runs")
    assert found is not None
    assert found["run"] == again.name
    other = [job_here({**monkeypatched, name: "9"}) for name in ("SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_PROCID")]
    assert [earlier_run(one, argv, tmp_path / "runs") for one in other] == [None, None, None]
    assert earlier_run(job, [*argv, "--other"], tmp_path / "runs") is None
    assert earlier_run(job, argv, tmp_path / "none") is None


@pytest.mark.slow
def test_without_a_checkpoint_a_restart_counts_from_one_and_says_so(tmp_path: Path) -> None:
    run_job(tmp_path, saves=False)
    ended = run_job(tmp_path, saves=False, restart="1")
    assert "has no checkpoint on record, so this run counts its steps from 1" in ended.told
    assert by_restart(tmp_path, 1).scalars().steps.tolist()[0] == 1


@pytest.mark.slow
def test_handlers_of_the_script_run_and_its_children_are_not_noted(tmp_path: Path) -> None:
    before = "signal.signal(signal.SIGUSR1, lambda *_: print('early', flush=True))"
    after = "signal.signal(signal.SIGTERM, lambda *_: print('late', flush=True))"
    then = (
        "os.kill(os.getpid(), signal.SIGUSR1); os.kill(os.getpid(), signal.SIGTERM); child(); "
        "signal.signal(signal.SIGUSR2, lambda *_: print('last', flush=True)); os.kill(os.getpid(), signal.SIGUSR2)"
    )
    child = """
def child():
    number = os.fork()
    if number == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGUSR2)
    assert os.WTERMSIG(os.waitpid(number, 0)[1]) == signal.SIGUSR2
"""
    ended = run_job(tmp_path, before=before, after=after + child, then=then)
    assert (ended.status, ended.out) == (0, "early\nlate\nlast\nend\n")
    run = by_restart(tmp_path, 0)
    assert sorted((note.signal, note.ended) for note in signals_of(run.path)) == [
        ("SIGTERM", False),
        ("SIGUSR1", False),
    ]
    assert (run.ended, run.state, slurm.ending(run)) == ("finished", "finished", None)
    assert "SIGUSR1 at train.py:" in str(slurm.signals_fact(run))


def test_notes_of_another_kind_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "signals"
    folder.mkdir()
    (folder / "SIGTERM-ends.txt").write_text("")
    (folder / "notes.txt").write_text("Current thread 0x1:\n")
    (folder / "SIGUSR1.txt").symlink_to("/etc/passwd")
    os.mkfifo(folder / "SIGUSR2.txt")
    assert signals_of(tmp_path) == ()
    (folder / "SIGTERM.txt").write_bytes(b"\xff" * 100_000 + b'\nThread 0x1:\n  File "a/b.py", line 3 in f\n')
    (note,) = signals_of(tmp_path)
    assert (note.signal, note.place) == ("SIGTERM", "b.py:3")
    assert json.dumps(note.when)


BUSY = """
import os, signal, subprocess, sys, threading, time
from pathlib import Path
from steadytrain.capture.hooks.last_signals import note_signals

came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
note_signals(Path(sys.argv[1]))

def deep(calls):
    return deep(calls - 1) if calls else 0

def busy():
    while True:
        deep(60)
        sorted(range(40), key=lambda value: deep(5))

for _ in range(3):
    threading.Thread(target=busy, daemon=True).start()
sends = "import os, sys, time\\nfor _ in range(1500): os.kill(int(sys.argv[1]), 15); time.sleep(0.001)"
with subprocess.Popen([sys.executable, "-c", sends, str(os.getpid())]) as sender:
    while sender.poll() is None:
        time.sleep(0.01)  # without the GIL, so that another thread runs when the signal comes
print(len(came), flush=True)
os._exit(0)
"""


def test_a_signal_does_not_read_the_stacks_of_threads_that_run(tmp_path: Path) -> None:
    """faulthandler reads them without the GIL: of a thread that runs, that ended the process by SIGSEGV."""
    ran = subprocess.run(
        [sys.executable, "-c", BUSY, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 1
    (note,) = signals_of(tmp_path)
    assert not note.ended
    assert note.place.startswith("<string>:")


INTERRUPTED = """
import os, signal, torch
from torch import nn
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.layer = nn.Dropout(0.1), nn.Linear(20, 3)

    def forward(self, x):
        scores = self.layer(self.drop(x))
        if step == 40:
            os.kill(os.getpid(), signal.SIGINT)
        return scores

net = Net()
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(60):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(torch.randn(80, 20)), torch.arange(80) % 3).backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_an_interrupt_in_a_forward_is_no_evaluation_and_show_says_how_it_ended(tmp_path: Path) -> None:
    ended = run_script(tmp_path, INTERRUPTED)
    assert ended.status == -signal.SIGINT
    assert "noisy-evaluation" not in ended.err
    shown = call("show", ended.run_dir).stdout
    assert "40 steps, interrupted" in " ".join(shown.split())
