"""What is launched with torch in memory behaves as a fresh interpreter does, and where it cannot, it is one."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warm

pytestmark = pytest.mark.skipif(not warm.POSSIBLE, reason="no warm processes here")
WAIT_S_MAX = 60.0


def ran(interpreter: str, folder: Path, source: str, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(textwrap.dedent(source), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **how.pop("more", {})}
    command = [interpreter, "script.py", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False, **how
    )


SEEN = """
    import __main__, os, sys
    print(sys.argv, sys.path[0], __name__, __main__.__file__, sorted(name for name in globals() if name[0] != "_"))
    print(os.getcwd(), os.environ["GIVEN"], sys.stdin.read(), sys.stdout.isatty(), sys.gettrace())
"""
ENDS = {
    "well": "print('told')",
    "with a status": "import sys; sys.exit(3)",
    "with words": "import sys; sys.exit('that was it')",
    "with an error": "import atexit\natexit.register(print, 'at exit')\ndef f(): 1 / 0\nf()",
    "in a syntax error": "def",
    "by its own signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "interrupted": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
    "with a thread": "import threading, time\nthreading.Timer(0.2, print, ['late']).start()",
}


def test_it_sees_what_a_fresh_one_sees(tmp_path: Path) -> None:
    how = {"input": "words", "more": {"GIVEN": "as it is"}}
    cold = ran(sys.executable, tmp_path, SEEN, "one", "--two", **how)
    assert ran(warm.client(), tmp_path, SEEN, "one", "--two", **how).stdout == cold.stdout


def test_it_runs_on_the_cores_of_its_parent(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    warm.client()
    os.sched_setaffinity(0, {max(before)})
    try:
        asked = ran(warm.client(), tmp_path, "import os; print(os.sched_getaffinity(0))")
    finally:
        os.sched_setaffinity(0, before)
    assert asked.stdout.strip() == f"{{{max(before)}}}"


@pytest.mark.parametrize("end", ENDS)
def test_it_ends_as_a_fresh_one_ends(end: str, tmp_path: Path) -> None:
    cold, here = (ran(interpreter, tmp_path, ENDS[end]) for interpreter in (sys.executable, warm.client()))
    assert (here.returncode, here.stdout, here.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_torch_is_there_and_as_it_begins(tmp_path: Path) -> None:
    source = """
        import random, sys
        print("torch" in sys.modules and "torch._dynamo" in sys.modules)
        import numpy, torch, torch._dynamo
        print(torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype(), torch._dynamo.utils.counters)
        print(random.random(), numpy.random.rand(), torch.rand(1).item(), file=sys.stderr)
    """
    first, second = (ran(warm.client(), tmp_path, source) for _ in range(2))
    cold = ran(sys.executable, tmp_path, source)
    assert first.stdout.splitlines() == ["True", *cold.stdout.splitlines()[1:]]
    assert cold.stdout.startswith("False")
    assert first.stderr != second.stderr, "all three generators seed themselves anew"


def test_what_it_launches_is_warm(tmp_path: Path) -> None:
    source = """
        import subprocess, sys
        if len(sys.argv) == 1:
            subprocess.run([sys.executable, "script.py", "inner"], check=True)
        else:
            print("torch" in sys.modules)
    """
    assert ran(warm.client(), tmp_path, source).stdout == "True\n"


@pytest.mark.parametrize("more", [{"OMP_NUM_THREADS": "2"}, {"PYTHONHASHSEED": "1"}, {"TORCH_LOGS": "graph_breaks"}])
def test_what_torch_reads_at_its_import_makes_a_fresh_one(more: dict[str, str], tmp_path: Path) -> None:
    assert ran(warm.client(), tmp_path, "import sys; print('torch' in sys.modules)", more=more).stdout == "False\n"


def test_warnings_are_as_they_are_asked_for(tmp_path: Path) -> None:
    source = "import sys, warnings; warnings.warn('heed'); print(sys.warnoptions)"
    for asked in ("ignore", "error::DeprecationWarning,ignore::UserWarning", "error"):
        cold, here = (
            ran(interpreter, tmp_path, source, more={"PYTHONWARNINGS": asked})
            for interpreter in (sys.executable, warm.client())
        )
        assert (here.returncode, here.stdout) == (cold.returncode, cold.stdout)
        assert ("heed" in here.stderr) == ("heed" in cold.stderr) == (asked == "error")


def test_what_libraries_set_makes_no_difference(tmp_path: Path) -> None:
    code = "import os, sklearn.datasets; print(dict(os.environ))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S_MAX, check=True)
    more = ast.literal_eval(done.stdout)
    if "KMP_INIT_AT_FORK" not in set(more) - set(os.environ):
        pytest.skip("the OpenMP library of this torch sets no variable")
    assert ran(warm.client(), tmp_path, "import sys; print('torch' in sys.modules)", more=more).stdout == "True\n"


def test_options_of_python_make_a_fresh_one(tmp_path: Path) -> None:
    code = "import sys; print('torch' in sys.modules)"
    done = subprocess.run([warm.client(), "-c", code], capture_output=True, text=True, timeout=WAIT_S_MAX, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_goes_with_the_process_that_stands_for_it(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with subprocess.Popen(
        [warm.client(), str(tmp_path / "script.py")], env=environment, stdout=subprocess.PIPE, text=True
    ) as stands:
        assert stands.stdout is not None
        process = int(stands.stdout.readline())
        assert process != stands.pid
        stands.send_signal(number)
        assert stands.wait(WAIT_S_MAX) == -number
        assert stands.stdout.read() == "", "its output is closed: it is over"


def test_a_signal_before_the_server_has_answered_is_not_lost(tmp_path: Path) -> None:
    """The client's socket is one whose answer comes late: the script runs, and has a signal sent, before it is read."""
    source = Path(warm.client()).read_text(encoding="utf-8")
    server = next(line for line in source.splitlines() if line.startswith("PYTHON, SERVER = ")).split("'")[-2]
    program = tmp_path / "python"
    program.write_text(source.replace(repr(server), repr(str(tmp_path / "late"))), encoding="utf-8")
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as late, subprocess.Popen(["sleep", "60"]) as script:
        late.bind(str(tmp_path / "late"))
        late.listen()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with subprocess.Popen([str(program), "script.py"], env=environment) as stands:
            line, _ = late.accept()
            line.recv(1_000_000)
            _until(lambda: _catches(stands.pid, signal.SIGTERM))
            stands.send_signal(signal.SIGTERM)
            line.sendall(f"process {script.pid}\n".encode())
            assert script.wait(WAIT_S_MAX) == -signal.SIGTERM
            line.sendall(f"ended {script.returncode}\n".encode())
            assert stands.wait(WAIT_S_MAX) == -signal.SIGTERM
            line.close()


def _catches(process: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _until(true: Callable[[], bool]) -> None:
    for _ in range(int(WAIT_S_MAX / 0.01)):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("waited too long")


def test_open_files_keep_their_numbers(tmp_path: Path) -> None:
    source = "import os, sys\nos.write(int(sys.argv[1]), b'through')\nprint(os.read(int(sys.argv[2]), 9))"
    (tmp_path / "in").write_text("here")
    with (tmp_path / "out").open("wb") as out, (tmp_path / "in").open("rb") as into:
        numbers = (out.fileno(), into.fileno())
        done = ran(warm.client(), tmp_path, source, *map(str, numbers), pass_fds=numbers)
    assert (done.stdout, (tmp_path / "out").read_text()) == ("b'here'\n", "through")
