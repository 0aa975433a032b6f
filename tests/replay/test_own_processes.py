"""A relaunched script reaches only what it started itself: servers, shared memory, priorities, files below /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from scripts import call, run_script
from steadytrain.replay.own_processes import OwnProcesses

DAEMON = """
import socket, sys

folder = sys.argv[1]
tcp = socket.create_server(("127.0.0.1", 0))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
path = socket.socket(socket.AF_UNIX)
path.bind(f"{folder}/saver")
path.listen()
named = socket.socket(socket.AF_UNIX)
named.bind(f"\\0steadytrain-test-{folder}")
named.listen()
print(tcp.getsockname()[1], udp.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[tuple[int, int, int]]:
    """A process of the user's with four servers: its number, and its ports of TCP and UDP."""
    words = [sys.executable, "-c", DAEMON, str(tmp_path)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as started:
        assert started.stdout is not None
        tcp, udp = map(int, started.stdout.readline().split())
        yield started.pid, tcp, udp


def test_servers_of_other_processes_are_not_reached(tmp_path: Path, daemon: tuple[int, int, int]) -> None:
    _, tcp, udp = daemon
    own = OwnProcesses("")
    with socket.socket() as one, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two:
        for theirs, address in ((one, ("127.0.0.1", tcp)), (two, ("127.0.0.1", udp))):
            with pytest.raises(ConnectionRefusedError, match="--allow-network"):
                own.connection((theirs, address))
    with socket.socket(socket.AF_UNIX) as three:
        for name in (f"{tmp_path}/saver", f"\0steadytrain-test-{tmp_path}"):
            with pytest.raises(ConnectionRefusedError, match="--allow-network"):
                own.connection((three, name))


def test_own_servers_and_closed_ports_are_left_to_the_system(tmp_path: Path) -> None:
    own = OwnProcesses("")
    with closing(socket.create_server(("127.0.0.1", 0))) as server, socket.socket() as client:
        own.connection((client, server.getsockname()))
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "own"))
        server.listen()
        own.connection((client, str(tmp_path / "own")))
        own.connection((client, str(tmp_path / "nobody")))
        own.connection((client,))


def test_a_process_is_known_by_its_session_or_its_mark(daemon: tuple[int, int, int]) -> None:
    stranger, _, _ = daemon
    with subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "LAUNCH": "a-mark-of-this-launch"},
    ) as child:
        own = OwnProcesses("a-mark-of-this-launch")
        assert own.has(os.getpid())
        assert own.has(child.pid)
        assert not own.has(stranger)
        own.limit((child.pid, 4, (1, 1)))
        own.limit((stranger, 4))
        with pytest.raises(PermissionError):
            own.limit((stranger, 4, (1, 1)))
        own.refuse_others(f"/proc/{os.getpid()}/comm")
        with pytest.raises(PermissionError, match="only processes that it started"):
            own.refuse_others(f"/proc/{stranger}/oom_score_adj")


def test_a_process_without_an_environment_is_as_its_parent_is() -> None:
    """A program that has only just started has none to read yet."""
    starts_one = """import subprocess
with subprocess.Popen(["/bin/cat"], env={}, start_new_session=True) as child:
    print(child.pid, flush=True)"""
    own = OwnProcesses("a-mark-of-this-launch")
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, start_new_session=True, env={}) as ours:
        assert own.has(ours.pid)
    parent = [sys.executable, "-c", starts_one]
    with subprocess.Popen(parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as stranger:
        assert stranger.stdout is not None
        assert not own.has(int(stranger.stdout.readline()))


SHARES = """
import os, sys, torch
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
cache = SharedMemory(sys.argv[1])
resource_tracker.unregister(cache._name, "shared_memory")  # it is not ours to remove at the end
read = bytes(cache.buf[:4])
cache.buf[:4] = b"step"
own = SharedMemory(create=True, size=16)
own.buf[:4] = b"mine"
again = SharedMemory(own.name)
print(read, bytes(cache.buf[:4]), bytes(again.buf[:4]))
for one in (cache, again, own):
    one.close()
own.unlink()
for step in range(4):
    rows = torch.randn(2, 4)
    if step == 2:
        rows[0, 0] = float("nan")
    optimizer.zero_grad()
    model(rows).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_shared_memory_that_was_there_is_copied(tmp_path: Path) -> None:
    theirs = SharedMemory(create=True, size=16)
    try:
        theirs.buf[:4] = b"data"
        ran = run_script(tmp_path, SHARES, arguments=(theirs.name,))
        assert (ran.status, bytes(theirs.buf[:4])) == (70, b"step")
        theirs.buf[:4] = b"data"
        replayed = call("replay", ran.run_dir, folder=tmp_path)
        assert "2 of 2 steps, to the last bit" in replayed.stdout, replayed.stderr
        assert bytes(theirs.buf[:4]) == b"data"
    finally:
        theirs.close()
        theirs.unlink()
