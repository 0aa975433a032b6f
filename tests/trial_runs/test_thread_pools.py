"""A process that computed on several threads forks: its fork computes the same on as many."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from steadytrain.experiments.specs import Entry, Spec
from steadytrain.trial_runs import stage, thread_pools

PROGRAM = """
import os, signal, torch
from steadytrain.trial_runs.thread_pools import release
torch.set_num_threads(2)
torch.manual_seed(0)
matrix = torch.randn(512, 512, requires_grad=True)

def gradient():
    return torch.autograd.grad((matrix @ matrix).sigmoid().sum(), matrix)[0]

before = gradient()
released = release()
child = os.fork()
if child == 0:
    signal.alarm(30)  # a fork that waits for missing threads would wait for ever
    os._exit(0 if torch.get_num_threads() == 2 and torch.equal(before, gradient()) else 1)
print(released, os.waitpid(child, 0)[1], torch.equal(before, gradient()))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks of torch are for Linux")
def test_a_fork_computes_the_same_bits_on_as_many_threads() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["True", "0", "True"], done.stderr


def test_a_thread_of_the_script_is_one_that_a_fork_misses() -> None:
    before = thread_pools.of_the_script()
    over = threading.Event()
    writer = threading.Thread(target=over.wait, name="writer of events", daemon=True)
    writer.start()
    try:
        assert set(thread_pools.of_the_script()) - set(before) == {"writer of events"}
    finally:
        over.set()
        writer.join()
    assert "writer of events" not in thread_pools.of_the_script()


@pytest.mark.parametrize(("threads", "copies"), [(["writer of events"], False), ([], True)])
def test_probes_are_no_forks_beside_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, threads: list[str], copies: bool
) -> None:
    """A queue of the script would fill up: what a fork puts there is taken by a thread that only its parent has."""
    monkeypatch.setattr(thread_pools, "of_the_script", lambda: threads)
    staged = object.__new__(stage._Stage)
    staged._run, staged._early, staged._made = SimpleNamespace(copies=True), [], []
    spec = Spec("unchanged", 0, 1, (Entry(2),), ())
    staged._job({"spec": spec.to_json(), "out": str(tmp_path / "out.json")})
    assert staged._run.copies is copies
