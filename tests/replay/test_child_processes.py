"""Nothing of what a command launched goes on after it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from steadytrain.replay import failing_step
from steadytrain.replay.child_processes import SPINS, sharing_cores
from steadytrain.replay.failing_step import run_logged
from waiting import until

WAIT_S = 120.0

LEAVES_A_SERVER = """
import os, subprocess, sys
server = subprocess.Popen(["sleep", "300"])
open(sys.argv[1], "w").write(f"{server.pid} {os.getpid()}")
"""

COMMAND = """
import sys, tempfile
from pathlib import Path
from steadytrain.replay.child_processes import ending_in_order
from steadytrain.replay import failing_step
from steadytrain.replay.failing_step import run_logged

with ending_in_order(), tempfile.TemporaryDirectory(prefix="steadytrain-") as scratch:
    Path(sys.argv[1], "scratch").write_text(scratch)
    run_logged(sys.argv[2:], Path(scratch, "log"), folder=None, wait_s=200)
"""


def is_gone(process: int) -> bool:
    """Whether a process has ended; one that nobody has asked for yet has, too."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def all_gone(processes: Iterable[int]) -> bool:
    for process in processes:
        until(lambda process=process: is_gone(process))
    return True


def written(file: Path) -> str:
    until(lambda: file.is_file() and file.read_text(encoding="utf-8"))
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("rest", ["", "import time; time.sleep(300)"])
def test_what_a_launched_script_has_started_ends_with_it(
    tmp_path: Path, rest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rest:  # the time is over as soon as the script has started its server
        monkeypatch.setattr(failing_step, "_waited", lambda *_: written(tmp_path / "process") and None)
    script = tmp_path / "script.py"
    script.write_text(LEAVES_A_SERVER + rest, encoding="utf-8")

    ended = run_logged([str(script), str(tmp_path / "process")], tmp_path / "log", folder=None, wait_s=WAIT_S)

    assert (ended is None) == bool(rest)
    assert all_gone(map(int, written(tmp_path / "process").split()))


def test_the_marks_under_a_traceback_are_not_what_a_script_said(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("value = dict(a=1)['a'] + dict(b=2)['c']", encoding="utf-8")

    ended = run_logged([str(script)], tmp_path / "log", folder=None, wait_s=60.0)

    assert ended is not None
    assert ended.said[-1] == "KeyError: 'c'"
    assert not any("^" in line for line in ended.said)


USUAL = {signal.SIGINT: "default_int_handler", signal.SIGTERM: "SIG_DFL", signal.SIGHUP: "SIG_DFL"}


@pytest.mark.parametrize("number", USUAL)
def test_a_command_that_is_ended_leaves_no_process_and_no_folder(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(LEAVES_A_SERVER + "import time; time.sleep(300)", encoding="utf-8")
    program = (
        f"import signal\nsignal.signal({int(number)}, signal.{USUAL[number]})\n{COMMAND}"  # nohup ignores one of them
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(script), str(tmp_path / "process")]

    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=dict(os.environ)) as running:
        processes = written(tmp_path / "process").split()
        running.send_signal(number)
        status = running.wait(WAIT_S)

    assert status in (128 + number, -signal.SIGINT)
    assert all_gone(map(int, processes))
    assert not Path(written(tmp_path / "scratch")).exists()


def test_a_hang_up_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    program = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{COMMAND}"
    script = tmp_path / "script.py"
    script.write_text("import os, signal; os.kill(os.getppid(), signal.SIGHUP)", encoding="utf-8")

    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), str(script)], check=False, timeout=60)

    assert done.returncode == 0


def test_threads_of_a_launched_script_sleep_while_they_wait_unless_the_user_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SPINS:
        monkeypatch.delenv(name, raising=False)
    say = "import os; print(os.environ['OMP_WAIT_POLICY'])"
    ended = run_logged(["-c", say], tmp_path / "log", folder=None, wait_s=WAIT_S)
    assert ended is not None
    assert ended.status == 0
    assert (tmp_path / "log").read_text(encoding="utf-8").strip() == "PASSIVE"
    for name in SPINS:
        assert sharing_cores({name: "1", "HOME": "/"}) == {name: "1", "HOME": "/"}
